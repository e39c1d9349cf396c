// inputs: grid:814225 grid:192002
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<2x6x3xf32>, tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<2x6x3xf32>, %1: tensor<2x3x4xf32>):
    %2 = "stablehlo.convolution"(%0, %1) <{dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, window_strides = array<i64: 2>, padding = dense<[[-1, 1]]> : tensor<1x2xi64>, lhs_dilation = array<i64: 1>, rhs_dilation = array<i64: 1>, window_reversal = array<i1: false>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x6x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    "func.return"(%2) : (tensor<2x3x4xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
