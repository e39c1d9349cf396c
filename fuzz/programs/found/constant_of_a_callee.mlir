// inputs: range:6:0:2
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = () -> (tensor<33xi2>, tensor<f32>), sym_name = "constants", sym_visibility = "private"}> ({
    %0 = "stablehlo.constant"() <{value = dense<-1> : tensor<33xi2>}> : () -> tensor<33xi2>
    %1 = "stablehlo.constant"() <{value = dense<0xFF80> : tensor<bf16>}> : () -> tensor<bf16>
    %2 = "stablehlo.convert"(%1) : (tensor<bf16>) -> tensor<f4E2M1FN>
    %3 = "stablehlo.convert"(%2) : (tensor<f4E2M1FN>) -> tensor<f32>
    "func.return"(%0, %3) : (tensor<33xi2>, tensor<f32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<33xi2>) -> (tensor<33xi2>, tensor<f32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<33xi2>):
    %1, %2 = "func.call"() <{callee = @constants}> : () -> (tensor<33xi2>, tensor<f32>)
    %3 = "stablehlo.shift_right_logical"(%1, %0) : (tensor<33xi2>, tensor<33xi2>) -> tensor<33xi2>
    "func.return"(%3, %2) : (tensor<33xi2>, tensor<f32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
