// inputs: hard:1847857643
module @tiles_that_repeat_on_each_device attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%0: tensor<20x2xf32>) -> (tensor<12x5x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {}, {}]>}) {
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"a", "b"}, {}]>] out_shardings=[<@mesh, [{"a", "b"}, {}, {}]>] manual_axes={"a", "b"} (%2: tensor<5x2xf32>) {
      %3 = stablehlo.broadcast_in_dim %2, dims = [1, 2] : (tensor<5x2xf32>) -> tensor<3x5x2xf32>
      sdy.return %3 : tensor<3x5x2xf32>
    } : (tensor<20x2xf32>) -> tensor<12x5x2xf32>
    return %1 : tensor<12x5x2xf32>
  }
}
