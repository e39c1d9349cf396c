// inputs: hard:1785670227 hard:2009123197
module @result_that_a_collective_reads attributes {mhlo.num_partitions = 16 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=4]>
  func.func public @main(%0: tensor<1x64xi32>, %1: tensor<4x64xi32>) -> tensor<1x64xi32> {
    %2, %3 = sdy.manual_computation(%0, %1, %0) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{"a"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {}]>, <@mesh, [{"a"}, {}]>] manual_axes={"a", "b"} (%4: tensor<1x64xi32>, %5: tensor<1x64xi32>, %6: tensor<1x64xi32>) {
      %7 = stablehlo.add %4, %6 : tensor<1x64xi32>
      %8 = stablehlo.subtract %7, %5 : tensor<1x64xi32>
      %9 = "stablehlo.all_reduce"(%8) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids, replica_groups = dense<[[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]> : tensor<4x4xi64>}> ({
      ^bb0(%10: tensor<i32>, %11: tensor<i32>):
        %12 = stablehlo.minimum %10, %11 : tensor<i32>
        stablehlo.return %12 : tensor<i32>
      }) : (tensor<1x64xi32>) -> tensor<1x64xi32>
      sdy.return %9, %8 : tensor<1x64xi32>, tensor<1x64xi32>
    } : (tensor<1x64xi32>, tensor<4x64xi32>, tensor<1x64xi32>) -> (tensor<1x64xi32>, tensor<4x64xi32>)
    return %2 : tensor<1x64xi32>
  }
}
