// inputs: grid:3799698827 hard:1233642229
module @branch_expands_what_it_captures attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}, %1: tensor<3xi32>) -> tensor<3xi32> {
    %2 = "stablehlo.case"(%0) ({
      %3 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i32>) -> tensor<3xi32>
      stablehlo.return %3 : tensor<3xi32>
    }, {
      stablehlo.return %1 : tensor<3xi32>
    }) : (tensor<i32>) -> tensor<3xi32>
    return %2 : tensor<3xi32>
  }
}
