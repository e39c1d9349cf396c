// inputs: hard:4139977445
"builtin.module"() <{sym_name = "rounded_subnormal_to_a_type_without_zero"}> ({
  "func.func"() <{function_type = (tensor<3x17xf32>) -> (tensor<3x17xf8E8M0FNU>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<3x17xf32>):
    %2 = "stablehlo.convert"(%0) : (tensor<3x17xf32>) -> tensor<3x17xbf16>
    %3 = "stablehlo.convert"(%2) : (tensor<3x17xbf16>) -> tensor<3x17xf8E8M0FNU>
    "func.return"(%3) : (tensor<3x17xf8E8M0FNU>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
