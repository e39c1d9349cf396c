// inputs: hard:3896443966 hard:653235873
module @initial_value_of_a_sum_beside_another attributes {mhlo.num_partitions = 12 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=3, "c"=2]>
  func.func public @main(%0: tensor<9xi64>, %1: tensor<9xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}]>}) -> tensor<f32> {
    %2 = stablehlo.constant dense<2.75> : tensor<f32>
    %3 = stablehlo.constant dense<-1> : tensor<i64>
    %4:2 = "stablehlo.reduce"(%0, %1, %3, %2) <{dimensions = array<i64: 0>}> ({
    ^bb0(%5: tensor<i64>, %6: tensor<f32>, %7: tensor<i64>, %8: tensor<f32>):
      %9 = stablehlo.add %6, %8 : tensor<f32>
      stablehlo.return %5, %9 : tensor<i64>, tensor<f32>
    }) : (tensor<9xi64>, tensor<9xf32>, tensor<i64>, tensor<f32>) -> (tensor<i64>, tensor<f32>)
    return %4#1 : tensor<f32>
  }
}
