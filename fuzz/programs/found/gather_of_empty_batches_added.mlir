// inputs: grid:1 hard:2
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<5x1xf32>, tensor<5x1x0xi32>) -> (tensor<1x5x1xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<5x1xf32>, %1: tensor<5x1x0xi32>):
    %2 = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], operand_batching_dims = [0], start_indices_batching_dims = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false}> : (tensor<5x1xf32>, tensor<5x1x0xi32>) -> tensor<1x5x1xf32>
    %3 = "stablehlo.add"(%2, %2) : (tensor<1x5x1xf32>, tensor<1x5x1xf32>) -> tensor<1x5x1xf32>
    "func.return"(%3) : (tensor<1x5x1xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
