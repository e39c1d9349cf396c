// A product in bf16 takes its terms in pairs: the second, a neighbour times zero, made NaN of an infinity.
// inputs: hard:1862871312 smooth:4223784370
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<6x5x5xbf16>, tensor<5x6x6xbf16>) -> (tensor<6x5x5x6xbf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<6x5x5xbf16>, %1: tensor<5x6x6xbf16>):
    %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [2, 0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<6x5x5xbf16>, tensor<5x6x6xbf16>) -> tensor<6x5x5x6xbf16>
    "func.return"(%2) : (tensor<6x5x5x6xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
