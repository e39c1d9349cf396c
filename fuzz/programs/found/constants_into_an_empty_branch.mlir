// inputs:
module @constants_into_an_empty_branch attributes {mhlo.num_partitions = 3 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=3]>
  func.func public @main() -> tensor<3x4xf32> {
    %0 = stablehlo.constant dense<false> : tensor<i1>
    %1 = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]> : tensor<3x4xf32>
    %2 = stablehlo.add %1, %1 : tensor<3x4xf32>
    %3 = "stablehlo.if"(%0) ({
      stablehlo.return %2 : tensor<3x4xf32>
    }, {
      %4 = stablehlo.negate %2 : tensor<3x4xf32>
      stablehlo.return %4 : tensor<3x4xf32>
    }) : (tensor<i1>) -> tensor<3x4xf32>
    return %3 : tensor<3x4xf32>
  }
}
