// inputs: smooth:36690892
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<33x16xf16>) -> (tensor<33x16xf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<33x16xf16>):
    %1 = "stablehlo.exponential_minus_one"(%0) : (tensor<33x16xf16>) -> tensor<33x16xf16>
    "func.return"(%1) : (tensor<33x16xf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
