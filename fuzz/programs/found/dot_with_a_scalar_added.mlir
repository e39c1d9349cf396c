// inputs: grid:665857075 grid:3867448485
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<5xi32>, tensor<i32>) -> (tensor<5xi32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<5xi32>, %1: tensor<i32>):
    %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<5xi32>, tensor<i32>) -> tensor<5xi32>
    %3 = "stablehlo.add"(%2, %0) : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
    "func.return"(%3) : (tensor<5xi32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
