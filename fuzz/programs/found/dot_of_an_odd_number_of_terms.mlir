// As the one of nothing summed, with three terms and a strided left side.
// inputs: hard:959920646 grid:205146793
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<3x6x2x3x2x1xbf16>, tensor<1x2x6x3x6xbf16>) -> (tensor<6x2x3x2x6xbf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<3x6x2x3x2x1xbf16>, %1: tensor<1x2x6x3x6xbf16>):
    %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1, 4], rhs_batching_dimensions = [2, 1], lhs_contracting_dimensions = [3, 5], rhs_contracting_dimensions = [3, 0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<3x6x2x3x2x1xbf16>, tensor<1x2x6x3x6xbf16>) -> tensor<6x2x3x2x6xbf16>
    "func.return"(%2) : (tensor<6x2x3x2x6xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
