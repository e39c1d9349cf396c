// inputs: number:578055697 grid:1738508399
"builtin.module"() <{sym_name = "select_and_scatter_sums_many"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=3]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<1212x2xbf16>, tensor<1212x1xbf16>) -> (tensor<1212x2xbf16>), sym_name = "main", sym_visibility = "public", arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}, {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}]}> ({
  ^bb0(%0: tensor<1212x2xbf16>, %1: tensor<1212x1xbf16>):
    %2 = "stablehlo.constant"() <{value = dense<0x0000> : tensor<bf16>}> : () -> tensor<bf16>
    %3 = "stablehlo.select_and_scatter"(%0, %1, %2) <{window_dimensions = array<i64: 1212, 1>, window_strides = array<i64: 1, 3>, padding = dense<[[1211, 0], [0, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%4: tensor<bf16>, %5: tensor<bf16>):
      %6 = "stablehlo.compare"(%4, %5) <{comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>}> : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }, {
    ^bb0(%7: tensor<bf16>, %8: tensor<bf16>):
      %9 = "stablehlo.add"(%7, %8) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%9) : (tensor<bf16>) -> ()
    }) : (tensor<1212x2xbf16>, tensor<1212x1xbf16>, tensor<bf16>) -> tensor<1212x2xbf16>
    "func.return"(%3) : (tensor<1212x2xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 3 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
