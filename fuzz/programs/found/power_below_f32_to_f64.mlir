// inputs: hard:3913813792
"builtin.module"() <{sym_name = "power_below_f32_to_f64"}> ({
  "func.func"() <{function_type = (tensor<5x6x1x2xf8E8M0FNU>) -> (tensor<5x6x1x2xf64>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<5x6x1x2xf8E8M0FNU>):
    %1 = "stablehlo.convert"(%0) : (tensor<5x6x1x2xf8E8M0FNU>) -> tensor<5x6x1x2xf32> loc("-":7:0)
    %2 = "stablehlo.convert"(%1) : (tensor<5x6x1x2xf32>) -> tensor<5x6x1x2xf64> loc("-":8:0)
    "func.return"(%2) : (tensor<5x6x1x2xf64>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
