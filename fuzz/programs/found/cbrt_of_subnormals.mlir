// The evaluator gave -5.6e-16 for the cube root of a subnormal.
// inputs: hard:2077886061
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<6x6xbf16>) -> (tensor<6x6xbf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<6x6xbf16>):
    %1 = "stablehlo.cbrt"(%0) : (tensor<6x6xbf16>) -> tensor<6x6xbf16>
    "func.return"(%1) : (tensor<6x6xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
