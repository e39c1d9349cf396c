// inputs: hard:11
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<64xf8E5M2>) -> (tensor<64xf8E5M2>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<64xf8E5M2>):
    %1 = "stablehlo.reduce_precision"(%0) <{exponent_bits = 4 : i32, mantissa_bits = 11 : i32}> : (tensor<64xf8E5M2>) -> tensor<64xf8E5M2>
    "func.return"(%1) : (tensor<64xf8E5M2>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
