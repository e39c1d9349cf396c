// inputs: hard:7 range:5:-1:8
module @negative_zeros_gathered_by_a_sum attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%0: tensor<64x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}, %1: tensor<40x1xi32>) -> tensor<40x3xf32> {
    %2 = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> : (tensor<64x3xf32>, tensor<40x1xi32>) -> tensor<40x3xf32>
    return %2 : tensor<40x3xf32>
  }
}
