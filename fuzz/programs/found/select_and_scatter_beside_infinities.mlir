// inputs: number:3196342031 grid:456666523
"builtin.module"() <{sym_name = "select_and_scatter_beside_infinities"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<851x2xf16>, tensor<427x2xf16>) -> (tensor<851x2xf16>), sym_name = "main", sym_visibility = "public", arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a", ?}]>}]}> ({
  ^bb0(%0: tensor<851x2xf16>, %1: tensor<427x2xf16>):
    %2 = "stablehlo.constant"() <{value = dense<0x0000> : tensor<f16>}> : () -> tensor<f16> loc("-":12:0)
    %3 = "stablehlo.select_and_scatter"(%0, %1, %2) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 2, 1>, padding = dense<[[2, 1], [1, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%4: tensor<f16>, %5: tensor<f16>):
      %6 = "stablehlo.compare"(%4, %5) <{comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>}> : (tensor<f16>, tensor<f16>) -> tensor<i1> loc("-":15:0)
      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }, {
    ^bb0(%7: tensor<f16>, %8: tensor<f16>):
      %9 = "stablehlo.add"(%7, %8) : (tensor<f16>, tensor<f16>) -> tensor<f16> loc("-":19:0)
      "stablehlo.return"(%9) : (tensor<f16>) -> ()
    }) : (tensor<851x2xf16>, tensor<427x2xf16>, tensor<f16>) -> tensor<851x2xf16> loc("-":13:0)
    "func.return"(%3) : (tensor<851x2xf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
