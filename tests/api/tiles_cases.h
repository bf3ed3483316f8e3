// The graphs whose nodes threads share in tiles_test.cpp.
#pragma once

#include <cstdint>
#include <functional>

#include "program_fixture.h"

namespace graphsink {

using Build = std::function<void(Graph&)>;

inline Value variable(Graph& g, const char* name, const Shape& shape, std::uint64_t seed) {
  return g.value(Variable(name, Tensor::uniform(shape, seed, -1.0f, 1.0f)));
}

// Numbers in [0, below) in no order, some of them several times.
inline Value indices(Graph& g, const char* name, const Shape& shape, std::int64_t below) {
  Tensor numbers(i32, shape);
  auto* to = reinterpret_cast<std::int32_t*>(numbers.data());
  for (std::int64_t i = 0; i < shape.size(); ++i) to[i] = static_cast<std::int32_t>(i * 7919 % 10007 % below);
  return g.value(Variable(name, numbers));
}

// A loss of `y` that gives its elements different gradients.
inline Value weighed(Graph& g, const Value& y) { return sum(y * variable(g, "weights", y.shape(), 99)); }

struct Case {
  const char* name;
  Build build;
  // If it is not 0: how many nodes of a step have several tiles, with streams.
  std::uint64_t nodes = 0;
};

// Each is large enough to have several tiles, or has several nodes that are independent.
inline const Case kCases[] = {
    {"ElementWise",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 301}, 1), row = variable(g, "row", {301}, 2);
       g.output("z", cast(where(greater(x, row), tanh(x) * row, x - 0.5), f64));
     }},
    {"ElementWiseAlone",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 301}, 1), column = variable(g, "column", {300, 1}, 2);
       Value y = x * column;
       g.output("y", cumsum(y, 1));
       g.output("z", where(greater(cumsum(y, 0), 0.0), 1.0, column));
     }},
    {"Movement",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 301}, 1);
       g.output("slice", slice(x, {3, 300}, {290, 1}, {2, -1}));
       g.output("pad", pad(x, {3, 4}, {1, 2}, 0.5));
       g.output("broadcast", broadcast_like(variable(g, "row", {301}, 2), x));
     }},
    {"LongRows",  // of several tiles each
     [](Graph& g) {
       Value x = variable(g, "x", {3, 50001}, 1);
       g.output("sum", sum(x));
       g.output("mean", mean(cast(x, f64), {1}));
       g.output("max", max(x, {1}));
       g.output("place", argmin(x, 1));
       g.output("product", prod(x * 0.001 + 1.0, {1}));
       g.output("logsumexp", logsumexp(x, {1}));
       g.output("all", all(greater(x, -0.9999), {1}));
       g.output("next", sum(x * sum(x)));  // uses a row when its parts have just been joined
     }},
    {"Commits",
     [](Graph& g) {
       for (std::int64_t size : {40001, 3, 0, 70000, 16384}) {
         Variable v("v" + std::to_string(size), Tensor::uniform({size}, 1));
         assign(v, g.value(v) * 2.0);
       }
     }},
    {"Products",
     [](Graph& g) {
       Value tall = variable(g, "tall", {700, 130}, 1), wide = variable(g, "wide", {130, 333}, 2);
       Value batches = variable(g, "batches", {9, 64, 70}, 3);
       g.output("tall", matmul(tall, wide));
       g.output("wide", matmul(slice(tall, {0}, {33}), variable(g, "w", {130, 900}, 4)));
       g.output("transposed", matmul(tall, tall, {.transpose_a = true}));
       g.output("batches", matmul(batches, batches, {.transpose_b = true}));
       g.output("f64", matmul(cast(tall, f64), cast(wide, f64)));
       g.output("halves", matmul(cast(tall, f16), cast(wide, f16)));
     }},
    {"ProductsWithWhatFollows",
     [](Graph& g) {
       Value x = variable(g, "x", {400, 128}, 1), few = variable(g, "few", {24, 128}, 2);
       Value w = variable(g, "w", {128, 700}, 3), b = variable(g, "b", {700}, 4);
       Value sum = matmul(x, w) + b;
       g.output("sum", sum);
       g.output("gelu", gelu(sum));
       g.output("columns", relu(matmul(few, w) + b));
       Value batches = variable(g, "batches", {6, 90, 80}, 5), v = variable(g, "v", {6, 80, 70}, 6);
       g.output("batches", tanh(matmul(batches, v) + variable(g, "c", {70}, 7)));
     }},
    {"Attention",
     [](Graph& g) {
       Value q = variable(g, "q", {3, 7, 70, 32}, 1), k = variable(g, "k", {3, 7, 150, 32}, 2);
       Value y = attention(q, k, k, {.causal = true});
       g.output("y", y);
       for (const Value& gradient : grad(sum(y * y), {q, k})) g.output("g" + std::to_string(gradient.node()), gradient);
     }},
    {"Convolutions",
     [](Graph& g) {
       Value x = variable(g, "x", {2, 12, 40, 37}, 1), w = variable(g, "w", {6, 6, 3, 3}, 2);
       Value y = conv2d(x, w, {.padding = {1, 1}, .groups = 2});
       g.output("y", y);
       for (const Value& gradient : grad(sum(y * y), {x, w})) g.output("g" + std::to_string(gradient.node()), gradient);
     }},
    {"Pools",
     [](Graph& g) {
       Value x = variable(g, "x", {3, 150, 301}, 1);
       for (bool is_max : {true, false})
         for (std::int64_t stride : {1, 2}) {
           Pool2dOptions options{.stride = {stride, stride}, .padding = {1, 0}};
           Value y = is_max ? max_pool2d(x, {3, 2}, options) : avg_pool2d(x, {3, 2}, options);
           g.output("y" + std::to_string(y.node()), y);
           g.output("g" + std::to_string(y.node()), grad(sum(y * y), {x})[0]);
         }
     }},
    {"IndependentNodes",
     [](Graph& g) {
       Value x = variable(g, "x", {20000}, 1);
       for (int i = 0; i < 7; ++i) g.output("y" + std::to_string(i), cumsum(x * (i + 1.0), 0));
     }},
    {"ChainsOnTwoStreams",
     [](Graph& g) {
       Value x = variable(g, "x", {150, 150}, 1), y = variable(g, "y", {150, 150}, 2), z = x, w = x;
       for (int i = 0; i < 6; ++i) {
         z = cumsum(matmul(z, x), 0) * 0.01;
         w = cumsum(matmul(w, y), 0) * 0.01;
       }
       g.output("sum", z + w);
     }},
    {"Training",
     [](Graph& g) {
       Value x = variable(g, "x", {128, 300}, 1);
       Variable w("w", Tensor::kaiming({300, 257}, 2)), b("b", Tensor(f32, {257})),
           v("v", Tensor::kaiming({257, 65}, 3));
       Value y = matmul(gelu(matmul(x, w) + b), v);
       Value loss = mean(y * y);
       adamw(loss, {w, b, v}, {.lr = 1e-2});
       g.output("loss", loss);
     }},
    {"Norms",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 150}, 1), gain = variable(g, "gain", {150}, 2),
             bias = variable(g, "bias", {150}, 3);
       Value y = layer_norm(x, gain, bias), z = rms_norm(x, gain);
       g.output("y", y);
       g.output("z", z);
       for (const Value& gradient : grad(weighed(g, y + z), {x, gain, bias}))
         g.output("g" + std::to_string(gradient.node()), gradient);
     }},
    {"Gather",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 301}, 1);
       g.output("rows", gather(x, indices(g, "i", {20, 20}, 300), 0));
       g.output("columns", gather(x, indices(g, "j", {400}, 301), 1));
       g.output("embedding", embedding(x, indices(g, "k", {7, 50}, 300)));
     },
     3},
    {"ScatterAdd",
     [](Graph& g) {
       Value x = variable(g, "x", {90, 301}, 1), updates = variable(g, "updates", {400, 301}, 2),
             batches = variable(g, "batches", {9, 80, 5}, 3);
       Value rows = indices(g, "i", {400}, 90), few = indices(g, "j", {300}, 80);
       g.output("rows", scatter_add(x, rows, updates));
       g.output("halves", scatter_add(cast(x, f16), rows, cast(updates, f16)));
       g.output("batches", scatter_add(batches, few, variable(g, "more", {9, 300, 5}, 4), 1));
       g.output("gradient", grad(weighed(g, gather(x, rows)), {x})[0]);
     }},
    {"ConcatAndSplit",
     [](Graph& g) {
       Value x = variable(g, "x", {200, 301}, 1), y = variable(g, "y", {200, 77}, 2),
             z = variable(g, "z", {31, 301}, 3);
       g.output("columns", concat({x, y, x}, 1));
       g.output("rows", concat({x, z}, 0));
       for (const Value& part : split(x, {100, 1, 200}, 1)) g.output("c" + std::to_string(part.output()), part);
       for (const Value& part : split(x, {150, 50}, 0)) g.output("r" + std::to_string(part.output()), part);
     },
     4},
    {"Sort",
     [](Graph& g) {
       Value x = variable(g, "x", {200, 200}, 1);
       Sorted rows = sort(x, 1), columns = sort(cast(x, f16), 0, {.descending = true});
       g.output("rows", rows.values);
       g.output("places of rows", rows.indices);
       g.output("columns", columns.values);
       g.output("places of columns", columns.indices);
     }},
    {"TopK",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 300}, 1);
       TopK rows = top_k(x, 7), columns = top_k(x, 3, 0);
       g.output("rows", rows.values);
       g.output("places of rows", rows.indices);
       g.output("columns", columns.values);
       g.output("places of columns", columns.indices);
     },
     2},
    {"Cumsum",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 301}, 1);
       g.output("rows", cumsum(x, 1));
       g.output("columns", cumsum(x, 0, {.exclusive = true, .reverse = true}));
       g.output("middle", cumsum(variable(g, "batches", {5, 90, 70}, 2), 1, {.reverse = true}));
     },
     3},
    {"TakeAlong",
     [](Graph& g) {
       Value x = variable(g, "x", {300, 120}, 1), halves = cast(variable(g, "y", {300, 120}, 2), f16);
       Value places = indices(g, "i", {300, 150}, 120);
       Value taken = take_along_axis(x, places, 1);
       g.output("taken", taken);
       g.output("gradient", grad(weighed(g, taken), {x})[0]);
       g.output("halves", grad(sum(take_along_axis(halves, places, 1)), {halves})[0]);
       g.output("places", grad(weighed(g, sort(x, 1).values), {x})[0]);
     }},
    {"OneHotAndTriangle",
     [](Graph& g) {
       g.output("one", one_hot(indices(g, "i", {700}, 90), 90));
       g.output("lower", tril(variable(g, "x", {3, 150, 150}, 1), 2));
     },
     2},
    {"CrossEntropyOfRows",
     [](Graph& g) {
       Value logits = variable(g, "x", {700, 90}, 1);
       Value losses = cross_entropy(logits, indices(g, "targets", {700}, 90), {.ignore_index = 5, .per_row = true});
       g.output("losses", losses);
     },
     1},
    {"ALoop",
     [](Graph& g) {
       auto [x, n] = while_(
           {variable(g, "x", {200, 200}, 1), g.constant(Tensor::scalar(0.0f))}, [](Value, Value n) { return n < 5.0; },
           [](Value x, Value n) {
             return std::array{tanh(matmul(x, x)) + 0.1, n + 1.0};
           });
       g.output("x", x);
       g.output("n", n);
     }},
    {"BranchesInALoop",
     [](Graph& g) {
       auto [x, n] = while_(
           {variable(g, "x", {200, 200}, 1), g.constant(Tensor::scalar(0.0f))}, [](Value, Value n) { return n < 6.0; },
           [](Value x, Value n) {
             Value y = if_(
                 sum(x) > 10.0, [&] { return matmul(x, x) * 0.01; }, [&] { return x + 0.25; });
             Value z = switch_(cast(n, i32), {[&] { return y; }, [&] { return tanh(matmul(y, y)); }, [&] { return y; },
                                              [&] { return y * 2.0; }, [&] { return exp(-y); }, [&] { return y; }});
             return std::array{z, n + 1.0};
           });
       g.output("x", x);
     }},
};

}  // namespace graphsink
