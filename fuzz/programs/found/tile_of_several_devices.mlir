// inputs: grid:241141359
module @tile_of_several_devices attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%0: tensor<2x4x8xi32>) -> tensor<4x4x8xi32> {
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{}, {}, {}]>] out_shardings=[<@mesh, [{"b"}, {}, {}]>] manual_axes={"a", "b"} (%2: tensor<2x4x8xi32>) {
      %3 = stablehlo.maximum %2, %2 : tensor<2x4x8xi32>
      %4 = stablehlo.add %3, %2 : tensor<2x4x8xi32>
      sdy.return %4 : tensor<2x4x8xi32>
    } : (tensor<2x4x8xi32>) -> tensor<4x4x8xi32>
    return %1 : tensor<4x4x8xi32>
  }
}
