// A pass made a padding of this convolution that took away more than there was.
// inputs: smooth:1086812244 grid:3167274107
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<1x2x1xf32>, tensor<2x1x1xf32>) -> (tensor<0x2x2xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<1x2x1xf32>, %1: tensor<2x1x1xf32>):
    %2 = "stablehlo.convolution"(%0, %1) <{dimension_numbers = #stablehlo.conv<[0, b, f]x[o, 0, i]->[0, f, b]>, window_strides = array<i64: 1>, padding = dense<[[-2, 0]]> : tensor<1x2xi64>, lhs_dilation = array<i64: 3>, rhs_dilation = array<i64: 2>, window_reversal = array<i1: false>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<1x2x1xf32>, tensor<2x1x1xf32>) -> tensor<0x2x2xf32>
    "func.return"(%2) : (tensor<0x2x2xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
