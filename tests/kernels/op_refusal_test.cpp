// What ops refuse, and how they say it.
#include <gtest/gtest.h>

#include <functional>

#include "test_ops.h"

namespace graphsink::op_refusal_test {
namespace {

struct Refusal {
  std::string op;
  std::string problem;  // part of the message
  std::function<void(Graph&)> call;
};

Value of(Graph& g, DType dtype, const Shape& shape) { return g.constant(Tensor(dtype, shape)); }

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> kRefusals{
      {"add", "do not broadcast: f32[2, 3], f32[2]",
       [](Graph& g) {
         add(of(g, f32, {2, 3}), of(g, f32, {2}));
       }},
      {"add", "dtypes differ", [](Graph& g) { add(of(g, f32, {2}), of(g, f64, {2})); }},
      {"add", "takes f32, f64, f16, bf16, i32, i64: bool",
       [](Graph& g) { add(of(g, boolean, {2}), of(g, boolean, {2})); }},
      {"sub", "do not broadcast",
       [](Graph& g) {
         of(g, i32, {3, 1, 2}) - of(g, i32, {4, 3});
       }},
      {"mul", "dtypes differ", [](Graph& g) { of(g, i32, {2}) * of(g, f32, {2}); }},
      {"div", "takes f32, f64, f16, bf16: i32", [](Graph& g) { of(g, i32, {2}) / of(g, i32, {2}); }},
      {"relu", "takes f32, f64, f16, bf16: i32[2]", [](Graph& g) { relu(of(g, i32, {2})); }},
      {"tanh", "takes f32, f64", [](Graph& g) { tanh(of(g, boolean, {2})); }},
      {"exp", "takes f32, f64", [](Graph& g) { exp(of(g, i32, {})); }},
      {"less", "takes f32, f64, f16, bf16, i32, i64, u8: bool",
       [](Graph& g) { (void)(of(g, boolean, {2}) < of(g, boolean, {2})); }},
      {"less_equal", "dtypes differ", [](Graph& g) { (void)(of(g, i32, {2}) <= of(g, f32, {2})); }},
      {"greater", "do not broadcast", [](Graph& g) { (void)(of(g, f32, {2}) > of(g, f32, {3})); }},
      {"greater_equal", "do not broadcast", [](Graph& g) { (void)(of(g, f32, {0}) >= of(g, f32, {3})); }},
      {"equal", "dtypes differ", [](Graph& g) { equal(of(g, boolean, {2}), of(g, f32, {2})); }},
      {"matmul", "inner dimensions differ: f32[2, 3], f32[4, 5]",
       [](Graph& g) {
         matmul(of(g, f32, {2, 3}), of(g, f32, {4, 5}));
       }},
      {"matmul", "inner dimensions differ, a transposed",
       [](Graph& g) {
         matmul(of(g, f32, {2, 3}), of(g, f32, {3, 5}), {.transpose_a = true});
       }},
      {"matmul", "takes two matrices",
       [](Graph& g) {
         matmul(of(g, f32, {3}), of(g, f32, {3, 5}));
       }},
      {"matmul", "the batches do not broadcast: f32[2, 3, 4], f32[3, 4, 5]",
       [](Graph& g) {
         matmul(of(g, f32, {2, 3, 4}), of(g, f32, {3, 4, 5}));
       }},
      {"matmul", "takes f32, f64, f16, bf16: i32",
       [](Graph& g) {
         matmul(of(g, i32, {2, 3}), of(g, i32, {3, 5}));
       }},
      {"sum", "there is no axis 2: f32[2, 3]",
       [](Graph& g) {
         sum(of(g, f32, {2, 3}), {2});
       }},
      {"sum", "there is no axis -3",
       [](Graph& g) {
         sum(of(g, f32, {2, 3}), {-3});
       }},
      {"sum", "axis -1 is named twice",
       [](Graph& g) {
         sum(of(g, f32, {2, 3}), {1, -1});
       }},
      {"sum", "takes f32, f64, f16, bf16, i32, i64: bool", [](Graph& g) { sum(of(g, boolean, {2})); }},
      {"sum", "takes f32, f64, f16, bf16, i32, i64: u8", [](Graph& g) { sum(of(g, u8, {2})); }},
      {"add", "takes f32, f64, f16, bf16, i32, i64: u8", [](Graph& g) { add(of(g, u8, {2}), of(g, u8, {2})); }},
      {"matmul", "has no result of bf16: f16",
       [](Graph& g) {
         matmul(of(g, f16, {2, 3}), of(g, f16, {3, 5}), {.out = bf16});
       }},
      {"matmul", "has no result of f32: f64",
       [](Graph& g) {
         matmul(of(g, f64, {2, 3}), of(g, f64, {3, 5}), {.out = f32});
       }},
      {"cross_entropy", "takes logits of f32, f64: bf16",
       [](Graph& g) {
         cross_entropy(of(g, bf16, {3, 2}), of(g, i32, {3}));
       }},
      {"mean", "takes f32, f64, f16, bf16: i32", [](Graph& g) { mean(of(g, i32, {2})); }},
      {"broadcast_like", "does not broadcast", [](Graph& g) { broadcast_like(of(g, f32, {2}), of(g, f32, {3})); }},
      {"broadcast_like", "does not broadcast",
       [](Graph& g) {
         broadcast_like(of(g, f32, {1, 2}), of(g, f32, {2}));
       }},
      {"sum_like", "does not broadcast",
       [](Graph& g) {
         sum_like(of(g, f32, {2}), of(g, f32, {2, 2}));
       }},
      {"reshape", "to [4] changes the number of elements, 6",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {4});
       }},
      {"reshape", "to [4, -1] changes",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {4, -1});
       }},
      {"reshape", "to [0, -1] changes",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {0, -1});
       }},
      {"reshape", "to [-1, -1]",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {-1, -1});
       }},
      {"reshape", "to [keep(0), keep(-2)] keeps axis 0 twice",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {keep(0), keep(-2)});
       }},
      {"reshape", "there is no axis 2",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {keep(2), -1});
       }},
      {"reshape", "to [keep(0), 2] changes the number of elements, 6",
       [](Graph& g) {
         reshape(of(g, f32, {2, 3}), {keep(0), 2});
       }},
      {"dim", "there is no axis -3",
       [](Graph& g) {
         dim(of(g, f32, {2, 3}), -3);
       }},
      {"dim", "axis 0 is too long for an i32", [](Graph& g) { dim(g.input("x", u8, {std::int64_t{1} << 31}), 0); }},
      {"reshape_like", "numbers of elements differ",
       [](Graph& g) {
         reshape_like(of(g, f32, {2, 3}), of(g, f32, {5}));
       }},
      {"transpose", "needs two axes", [](Graph& g) { transpose(of(g, f32, {3})); }},
      {"embedding", "the indices are not i32",
       [](Graph& g) {
         embedding(of(g, f32, {3, 2}), of(g, f32, {2}));
       }},
      {"embedding", "the table is not a matrix", [](Graph& g) { embedding(of(g, f32, {3}), of(g, i32, {2})); }},
      {"embedding", "the table is not of floats",
       [](Graph& g) {
         embedding(of(g, i32, {3, 2}), of(g, i32, {2}));
       }},
      {"cross_entropy", "the targets are not",
       [](Graph& g) {
         cross_entropy(of(g, f32, {3, 2}), of(g, i32, {2}));
       }},
      {"cross_entropy", "the targets are not",
       [](Graph& g) {
         cross_entropy(of(g, f32, {3, 2}), of(g, f32, {3}));
       }},
      {"accuracy", "the labels are not one for each row of logits: f32[3, 2], i32[2]",
       [](Graph& g) {
         accuracy(of(g, f32, {3, 2}), of(g, i32, {2}));
       }},
      {"accuracy", "the labels are not one for each row",
       [](Graph& g) {
         accuracy(of(g, f32, {3, 2}), of(g, i32, {3, 2}));
       }},
      {"accuracy", "the labels are f32[3]",
       [](Graph& g) {
         accuracy(of(g, f32, {3, 2}), of(g, f32, {3}));
       }},
      {"accuracy", "the mask is i32[3]",
       [](Graph& g) {
         accuracy(of(g, f32, {3, 2}), of(g, i32, {3}), of(g, i32, {3}));
       }},
      {"accuracy", "the mask does not broadcast to the labels: bool[2], i32[3]",
       [](Graph& g) {
         accuracy(of(g, f32, {3, 2}), of(g, i32, {3}), of(g, boolean, {2}));
       }},
      {"cross_entropy", "the logits are not a matrix",
       [](Graph& g) { cross_entropy(of(g, f32, {3}), of(g, i32, {3})); }},
      {"check_finite", "takes f32, f64", [](Graph& g) { check_finite(of(g, i32, {3})); }},
  };
  return kRefusals;
}

TEST(OpRefusals, NameTheOpTheProblemAndTheLine) {
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.op + ": " + refusal.problem);
    Graph g;
    try {
      refusal.call(g);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), refusal.op);
      EXPECT_NE(e.problem().find(refusal.problem), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.where().file_name()).find("op_refusal_test.cpp"), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
    }
  }
}

}  // namespace
}  // namespace graphsink::op_refusal_test
