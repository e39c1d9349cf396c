// inputs: grid:7
module @collective_in_a_composite attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%0: tensor<64xf32>) -> tensor<64xf32> {
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"b"}]>] out_shardings=[<@mesh, [{"b"}]>] manual_axes={"a", "b"} (%2: tensor<32xf32>) {
      %3 = stablehlo.composite "fuzz.sum" %2 {decomposition = @sum, version = 1 : i32} : (tensor<32xf32>) -> tensor<32xf32>
      sdy.return %3 : tensor<32xf32>
    } : (tensor<64xf32>) -> tensor<64xf32>
    return %1 : tensor<64xf32>
  }
  func.func private @sum(%0: tensor<32xf32>) -> tensor<32xf32> {
    %1 = "stablehlo.all_reduce"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
    ^bb0(%2: tensor<f32>, %3: tensor<f32>):
      %4 = stablehlo.add %2, %3 : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }) : (tensor<32xf32>) -> tensor<32xf32>
    return %1 : tensor<32xf32>
  }
}
