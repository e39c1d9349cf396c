// inputs: hard:672782128 hard:3753426505 grid:455997699 range:1290577107:-2:5 range:3397242809:-2:6 range:135017288:-2:3
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<9x3x4x1xbf16>, tensor<8x2x1x1xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<9x3x4x1xi1>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<9x3x4x1xbf16>, %1: tensor<8x2x1x1xbf16>, %2: tensor<i32>, %3: tensor<i32>, %4: tensor<i32>, %5: tensor<i32>):
    %6 = "stablehlo.dynamic_update_slice"(%0, %1, %2, %3, %4, %5) : (tensor<9x3x4x1xbf16>, tensor<8x2x1x1xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<9x3x4x1xbf16>
    %7 = "stablehlo.convert"(%6) : (tensor<9x3x4x1xbf16>) -> tensor<9x3x4x1xi1>
    "func.return"(%7) : (tensor<9x3x4x1xi1>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
