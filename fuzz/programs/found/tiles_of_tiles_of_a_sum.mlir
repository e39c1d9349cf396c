// inputs: number:3215778805 grid:45969406
module @tiles_of_tiles_of_a_sum attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(%0: tensor<8x6x8xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}, {"x"}]>}, %1: tensor<8x8x4xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}, {}]>}) -> (tensor<8x6x4xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}, {}]>}) {
    %2 = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x6x8xi32>, tensor<8x8x4xi32>) -> tensor<8x6x4xi32>
    %3 = sdy.sharding_constraint %2 <@mesh, [{"x"}, {"y"}, {}]> : tensor<8x6x4xi32>
    return %3 : tensor<8x6x4xi32>
  }
}
