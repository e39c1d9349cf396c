// inputs: smooth:2861347661 hard:2494321114
"builtin.module"() <{sym_name = "narrow_float_in_a_loop"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=8]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<8x6x7xf8E5M2FNUZ>, tensor<3xbf16>) -> (tensor<8x6x7xf8E5M2FNUZ>), sym_name = "main", sym_visibility = "public", arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{}]>}]}> ({
  ^bb0(%0: tensor<8x6x7xf8E5M2FNUZ>, %1: tensor<3xbf16>):
    %2 = "stablehlo.constant"() <{value = dense<1> : tensor<i64>}> : () -> tensor<i64> loc("-":6:0)
    %3, %4, %5 = "stablehlo.while"(%2, %1, %0) ({
    ^bb0(%6: tensor<i64>, %7: tensor<3xbf16>, %8: tensor<8x6x7xf8E5M2FNUZ>):
      %9 = "stablehlo.constant"() <{value = dense<3> : tensor<i64>}> : () -> tensor<i64> loc("-":9:0)
      %10 = "stablehlo.compare"(%6, %9) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i64>, tensor<i64>) -> tensor<i1> loc("-":10:0)
      "stablehlo.return"(%10) : (tensor<i1>) -> ()
    }, {
    ^bb0(%11: tensor<i64>, %12: tensor<3xbf16>, %13: tensor<8x6x7xf8E5M2FNUZ>):
      %14 = "stablehlo.multiply"(%13, %13) : (tensor<8x6x7xf8E5M2FNUZ>, tensor<8x6x7xf8E5M2FNUZ>) -> tensor<8x6x7xf8E5M2FNUZ> loc("-":14:0)
      %15 = "stablehlo.constant"() <{value = dense<1> : tensor<i64>}> : () -> tensor<i64> loc("-":15:0)
      %16 = "stablehlo.add"(%11, %15) : (tensor<i64>, tensor<i64>) -> tensor<i64> loc("-":16:0)
      "stablehlo.return"(%16, %12, %14) : (tensor<i64>, tensor<3xbf16>, tensor<8x6x7xf8E5M2FNUZ>) -> ()
    }) : (tensor<i64>, tensor<3xbf16>, tensor<8x6x7xf8E5M2FNUZ>) -> (tensor<i64>, tensor<3xbf16>, tensor<8x6x7xf8E5M2FNUZ>) loc("-":7:0)
    "func.return"(%5) : (tensor<8x6x7xf8E5M2FNUZ>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 16 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
