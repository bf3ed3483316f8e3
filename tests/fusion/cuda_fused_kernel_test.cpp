// Groups of element-wise ops on CUDA devices: kernels that are compiled for the group change no bit.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "api/plan_of.h"
#include "device/cuda/nvrtc.h"
#include "fusion_fixture.h"
#include "ir/fused.h"
#include "ir/system_ops.h"
#include "kernels/runtime/fused_source.h"
#include "plan_text.h"

namespace graphsink::testing::cuda_fused_kernel_test {
namespace {

using Op = std::function<Value(Value, Value)>;

const std::vector<Op> kFloatOps = {
    [](Value a, Value b) { return a + b; },
    [](Value a, Value b) { return a - b; },
    [](Value a, Value b) { return a * b; },
    [](Value a, Value b) { return a / b; },
    [](Value a, Value b) { return pow(abs(a), b); },
    [](Value a, Value b) { return minimum(a, b); },
    [](Value a, Value b) { return maximum(a, b); },
    [](Value a, Value) { return -a; },
    [](Value a, Value) { return exp(a); },
    [](Value a, Value) { return log(a); },
    [](Value a, Value) { return sqrt(a); },
    [](Value a, Value) { return rsqrt(a); },
    [](Value a, Value) { return sign(a); },
    [](Value a, Value) { return floor(a); },
    [](Value a, Value) { return ceil(a); },
    [](Value a, Value) { return round(a); },
    [](Value a, Value) { return erf(a); },
    [](Value a, Value) { return relu(a); },
    [](Value a, Value) { return tanh(a); },
    [](Value a, Value) { return sigmoid(a); },
    [](Value a, Value) { return silu(a); },
    [](Value a, Value) { return gelu(a); },
    [](Value a, Value) { return sin(a); },
    [](Value a, Value) { return cos(a); },
    [](Value a, Value) { return clamp(a, -0.5, 0.75); },
};
const std::vector<Op> kIntegerOps = {
    [](Value a, Value b) { return a + b; },         [](Value a, Value b) { return a - b; },
    [](Value a, Value b) { return a * b; },         [](Value a, Value b) { return minimum(a, b); },
    [](Value a, Value b) { return maximum(a, b); }, [](Value a, Value) { return -a; },
    [](Value a, Value) { return sign(a); },         [](Value a, Value) { return clamp(a, -100.0, 1000.0); },
};
const std::vector<Op> kComparisons = {
    [](Value a, Value b) { return less(a, b); },    [](Value a, Value b) { return less_equal(a, b); },
    [](Value a, Value b) { return greater(a, b); }, [](Value a, Value b) { return greater_equal(a, b); },
    [](Value a, Value b) { return equal(a, b); },   [](Value a, Value b) { return not_equal(a, b); },
};
const std::vector<Op> kLogicalOps = {
    [](Value a, Value b) { return logical_and(a, b); }, [](Value a, Value b) { return logical_or(a, b); },
    [](Value a, Value b) { return logical_xor(a, b); }, [](Value a, Value) { return logical_not(a); },
    [](Value a, Value b) { return equal(a, b); },
};

const Shape kShape = {6, 5, 8};
// Of the second operand.
const std::vector<Shape> kSeconds = {{6, 5, 8}, {8}, {6, 1, 1}, {5, 1}, {6, 1, 8}, {}};

// All sorts of numbers, and special ones, as elements of the dtype.
Tensor numbers(DType dtype, const Shape& shape, std::uint64_t seed) {
  if (dtype == boolean) return Tensor::uniform(shape, seed, 0.0f, 2.0f).to(i32).to(boolean);
  if (!is_float(dtype)) return Tensor::uniform(shape, seed, -2e9f, 2e9f).to(dtype);
  Tensor values = Tensor::uniform(shape, seed, -4.0f, 4.0f);
  const float special[] = {0.0f, -0.0f, 1.0f, 2.0f, 0.5f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, -1e30f};
  auto* x = static_cast<float*>(const_cast<void*>(static_cast<const void*>(values.data())));
  for (std::int64_t i = 0; i + 2 < shape.size(); i += 3)
    x[i] = special[static_cast<std::size_t>(i) * (seed + 2) % std::size(special)];
  return values.to(dtype);
}

// Computes each op for a part of the elements: the result of op k replaces what was there where a mask says so. So the
// ops are one group, and elements are moved, which keeps their bits.
Value all_of(const std::vector<Op>& ops, Value a, Value b, Value first, Value number) {
  Value result = first;
  for (std::size_t k = 0; k < ops.size(); ++k)
    result = where(equal(number, static_cast<double>(k)), ops[k](a, b), result);
  return result;
}

Value number_of_elements(Graph& g, std::size_t ops) {
  std::vector<std::int32_t> number(static_cast<std::size_t>(kShape.size()));
  for (std::size_t i = 0; i < number.size(); ++i) number[i] = static_cast<std::int32_t>(i * 7 % ops);
  return g.value(Variable("number", Tensor(kShape, number)));
}

void build_all(Graph& g, DType dtype, const Shape& second) {
  Value a = g.value(Variable("a", numbers(dtype, kShape, 1))), b = g.value(Variable("b", numbers(dtype, second, 2)));
  const auto& ops = is_float(dtype) ? kFloatOps : dtype == boolean ? kLogicalOps : kIntegerOps;
  if (dtype != u8) g.output("z", all_of(ops, a, b, broadcast_like(b, a), number_of_elements(g, ops.size())));
  if (dtype == boolean) return;
  Value never = not_equal(number_of_elements(g, 7), number_of_elements(g, 7));
  g.output("compared", all_of(kComparisons, a, b, never, number_of_elements(g, kComparisons.size())));
}

// The names of the ops in groups.
std::set<std::string> joined_ops(const Plan& plan) {
  std::set<std::string> names;
  for (const PlanNode& node : plan.nodes)
    if (const auto* group = node.attrs.get_if<FusedAttrs>())
      for (const FusedOp& op : group->ops) names.emplace(op.op->name);
  return names;
}

TEST_F(Fusion, AChainIsOneKernel) {
  auto make = [](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({1003}, 1, -2.0f, 2.0f)));
    g.output("z", tanh(x * 2.0 + 1.0));
  };
  Plan plan = expect_same_bits(make);
  EXPECT_EQ(ops_of(plan), "[mul add tanh]");
  Graph g;
  make(g);
  auto kernels = [&](bool fuse) {
    Program program = compile(g, {.target = cuda(0), .tuning = {.fuse = fuse}});
    program.run(interactive_serial);
    return program.counters().kernels;
  };
  EXPECT_EQ(kernels(true) + 2, kernels(false));
}

TEST_F(Fusion, EveryOpKeepsItsBits) {
  std::set<std::string> joined;
  std::size_t second = 0;
  for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8, boolean}) {
    const Shape& shape = kSeconds[second++ % kSeconds.size()];
    SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(shape));
    joined.merge(joined_ops(expect_same_bits([&](Graph& g) { build_all(g, dtype, shape); })));
  }
  for (const char* name :
       {"add",       "sub",         "mul",        "div",         "pow",        "minimum", "maximum",       "neg",
        "abs",       "exp",         "log",        "sqrt",        "rsqrt",      "sign",    "floor",         "ceil",
        "round",     "erf",         "relu",       "tanh",        "sigmoid",    "silu",    "gelu",          "sin",
        "cos",       "clamp",       "where",      "less",        "less_equal", "greater", "greater_equal", "equal",
        "not_equal", "logical_and", "logical_or", "logical_xor", "logical_not"})
    EXPECT_TRUE(joined.contains(name)) << name;
}

// For a compiler that takes them for signed numbers, which must not overflow, x + 1 is always greater than x.
TEST_F(Fusion, IntegersWrapAround) {
  expect_same_bits([](Graph& g) {
    for (DType dtype : {i32, i64}) {
      const double largest = dtype == i32 ? 2147483647.0 : 0x1p62;
      Value x = g.value(Variable("x", Tensor::full(f64, {9}, largest).to(dtype)));
      Value y = dtype == i32 ? x + 1.0 : x * 2.0;
      g.output(std::string(to_string(dtype)), greater(y, x));
    }
  });
}

TEST_F(Fusion, EveryGradientKeepsItsBits) {
  std::set<std::string> joined;
  for (DType dtype : {f32, bf16}) {
    const Shape& second = dtype == f32 ? kShape : kSeconds[3];
    SCOPED_TRACE(to_string(dtype));
    joined.merge(joined_ops(expect_same_bits([&](Graph& g) {
      Value a = g.value(Variable("a", numbers(dtype, kShape, 3))),
            b = g.value(Variable("b", numbers(dtype, second, 4)));
      Value z = all_of(kFloatOps, a, b, a, number_of_elements(g, kFloatOps.size()));
      std::vector<Value> gradients = grad(sum(cast(z, f32) * 0.5), {a, b});
      g.output("a", gradients[0] * 2.0);
      g.output("b", gradients[1]);
    })));
  }
  for (const char* name : {"pow_slope", "pow_log", "div_slope", "minimum_share", "maximum_share", "relu_grad",
                           "sqrt_grad", "rsqrt_grad", "tanh_grad", "sigmoid_grad", "abs_grad", "sin_grad", "cos_grad",
                           "erf_grad", "silu_grad", "gelu_grad", "clamp_grad"})
    EXPECT_TRUE(joined.contains(name)) << name;
}

TEST_F(Fusion, EveryCastKeepsItsBits) {
  const DType dtypes[] = {f32, f64, f16, bf16, i32, i64, u8, boolean};
  expect_same_bits([&](Graph& g) {
    for (DType from : dtypes) {
      Value x = g.value(Variable("x", numbers(from, kShape, 5)));
      // All results of one dtype, each in an eighth of the elements.
      Value result = cast(x, f64), number = number_of_elements(g, std::size(dtypes));
      for (std::size_t k = 0; k < std::size(dtypes); ++k)
        result = where(equal(number, static_cast<double>(k)), cast(cast(x, dtypes[k]), f64), result);
      g.output(std::string(to_string(from)), result);
    }
  });
}

TEST_F(Fusion, EveryBroadcastKeepsItsBits) {
  expect_same_bits([&](Graph& g) {
    Value a = g.value(Variable("a", numbers(f32, kShape, 1)));
    Value all = a * 2.0;
    for (std::size_t k = 0; k < kSeconds.size(); ++k) {
      Value b = g.value(Variable("b" + std::to_string(k), numbers(f32, kSeconds[k], k)));
      all = where(greater(a, b), all + b, all);
      g.output("z" + std::to_string(k), (a - b) * a);
    }
    g.output("all", all);
  });
}

// Reductions of the rows of a [rows, width] matrix, in each of the ways to combine terms.
void build_reductions(Graph& g, DType dtype, std::int64_t rows, std::int64_t width) {
  Value x = g.value(Variable("x", numbers(dtype, {rows, width}, 1)));
  if (dtype == boolean) {
    Value y = logical_not(x);
    g.output("y", y);
    g.output("any", any(y, {1}));
    g.output("all", all(y, {1}, {.keep_axes = true}));
    return;
  }
  Value row = g.value(Variable("row", numbers(dtype, {width}, 2)));
  Value column = g.value(Variable("column", numbers(dtype, {rows, 1}, 3)));
  Value y = where(greater(x, row), x, row);
  if (dtype != u8) {
    y = y + column;
    g.output("sum", sum(y, {1}));
    g.output("product", prod(y * 2.0, {1}, {.keep_axes = true}));
  }
  g.output("max", max(y, {1}));
  g.output("min", min(y, {-1}, {.keep_axes = true}));
  g.output("y", y);
  if (!is_float(dtype)) return;
  g.output("mean", mean(abs(y), {1}));
  // Of finite numbers: else they are NaN or infinite nearly everywhere.
  g.output("logsumexp", logsumexp(clamp(y, -2.0, 2.0), {1}));
}

// A thread, a warp or a block has a row.
TEST_F(Fusion, EveryReductionOfRowsKeepsItsBits) {
  std::set<std::string> joined;
  for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8, boolean}) {
    for (const Shape& shape : {Shape{37, 2}, Shape{300, 32}, Shape{7, 33}, Shape{5, 1000}, Shape{1, 700}}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(shape));
      const Plan plan = expect_same_bits([&](Graph& g) { build_reductions(g, dtype, shape[0], shape[1]); });
      EXPECT_EQ(plan.fusion.nodes, 1u) << ops_of(plan);
      joined.merge(joined_ops(plan));
    }
  }
  for (const char* name : {"sum", "mean", "max", "min", "prod", "logsumexp", "any", "all"})
    EXPECT_TRUE(joined.contains(name)) << name;
}

// So many rows that a warp has long ones, and several of them.
TEST_F(Fusion, ReductionsOfManyRowsKeepTheirBits) {
  for (const Shape& shape : {Shape{1100, 300}, Shape{300000, 2}, Shape{33000, 33}}) {
    SCOPED_TRACE(to_string(shape));
    expect_same_bits([&](Graph& g) {
      Value x = g.value(Variable("x", Tensor::uniform(shape, 1, -1.0f, 1.0f)));
      g.output("sum", sum(x * 2.0, {1}));
    });
  }
}

TEST_F(Fusion, ALossIsOneKernel) {
  const Plan plan = expect_same_bits([](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({20, 30}, 1))),
          y = g.value(Variable("y", Tensor::uniform({20, 30}, 2)));
    Value error = x - y;
    g.output("loss", mean(error * error));
  });
  EXPECT_EQ(ops_of(plan), "[sub mul mean]");
}

// The same kernel serves other shapes, so their sizes are no part of the source.
TEST_F(Fusion, OtherSizesNeedNoOtherKernel) {
  Graph g;
  Value x = g.input("x", f32, {open(3), 4}), row = g.value(Variable("row", Tensor::uniform({4}, 1)));
  g.output("z", tanh(x * row + 1.0));
  Program program = compile(g, {.target = cuda(0)});
  for (std::int64_t rows : {3, 1000, 2, 17}) {
    program.write(x, Tensor::uniform({rows, 4}, 7));
    program.run();
    program.sync();
  }
  EXPECT_EQ(program.counters().compiled_kernels + program.counters().cached_kernels, 1u);
}

TEST_F(Fusion, OtherRowsNeedNoOtherKernelUnlessOthersReduceThem) {
  Graph g;
  Value x = g.input("x", f32, {open(3), open(40)});
  g.output("z", mean(x * 2.0, {1}));
  Program program = compile(g, {.target = cuda(0)});
  auto kernels_after = [&](std::int64_t rows, std::int64_t width) {
    Tensor data = Tensor::full(f32, {rows, width}, 1.5);
    program.write(x, data);
    program.run();
    program.sync();
    EXPECT_EQ(program.output("z").at(rows - 1), 3.0);
    return program.counters().compiled_kernels + program.counters().cached_kernels;
  };
  EXPECT_EQ(kernels_after(3, 40), 1u);
  EXPECT_EQ(kernels_after(1000, 256), 1u);
  EXPECT_EQ(kernels_after(17, 33), 1u);
  EXPECT_EQ(kernels_after(17, 32), 2u);
  EXPECT_EQ(kernels_after(17, 257), 3u);
}

TEST_F(Fusion, AnOutputMayOverwriteAnInput) {
  Plan plan = expect_same_bits([](Graph& g) {
    Value x = cumsum(g.value(Variable("x", Tensor::uniform({3001}, 1))), 0);  // a value of the arena
    Value y = x + 1.0;
    g.output("sum", sum(cast(y * x, f64)));
    g.output("total", sum(y));
    Value square = cumsum(g.value(Variable("s", Tensor::uniform({40, 40}, 2))), 0), first = sum(square, {0});
    g.output("s", cumsum(square * first + square, 0));
    Value column = cumsum(g.value(Variable("c", Tensor::uniform({100, 1}, 3))), 0), flat = reshape(column, {100});
    Value twice = column + column;
    g.output("twice", twice);
    g.output("flat", cast(reshape(twice, {100}) * flat, f64));
  });
  EXPECT_GE(plan.fusion.nodes, 3u);
}

TEST_F(Fusion, BodiesOfLoopsAndBranchesHaveGroups) {
  Plan plan = expect_same_bits([](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({200}, 1)));
    auto [y] = while_(
        {x}, [](Value s) { return sum(s) < 1e4; }, [&](Value s) { return abs(s) * 1.5 + x; });
    Value z = if_(
        sum(y) > 0.0, [&] { return relu(y) + 1.0; }, [&] { return tanh(y) * y; });
    g.output("z", z);
  });
  EXPECT_GE(plan.fusion.nodes, 3u);
}

TEST_F(Fusion, AnOpOfTheUserMayHaveACodeThatDoesNotCompile) {
  static const OpDef base = [] {
    OpDef op{.name = "user_twice",
             .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
             .elements = {.text = "twice(x)",
                          .type = [](std::span<const TensorType>) -> std::string_view { return "float"; }},
             .bodies = {[](CudaArgs&) {}}};
    return op;
  }();
  Graph g;
  Value x = g.value(Variable("x", Tensor::uniform({10}, 1)));
  g.output("z", emit(base, {Arg(x)})[0] + 1.0);
  try {
    Program program = compile(g, {.target = cuda(0)});
    program.run();
    program.sync();
    FAIL() << "it was compiled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("twice"), std::string::npos) << e.what();
    EXPECT_NE(e.problem().find("NVRTC_ERROR_COMPILATION"), std::string::npos) << e.what();
  }
  Program separate = compile(g, {.target = cuda(0), .tuning = {.fuse = false}});
  separate.run();
  separate.sync();
}

TEST_F(Fusion, EqualGroupsShareAKernel) {
  Graph g;
  for (int i = 0; i < 3; ++i) {  // of different sizes, so that they are not packed into one node
    Value x = g.value(Variable("x", Tensor::uniform({100 + i}, static_cast<std::uint64_t>(i))));
    g.output("z" + std::to_string(i), tanh(x * 2.0 + 1.0));
  }
  Program program = compile(g, {.target = cuda(0)});
  program.run();
  EXPECT_EQ(plan_of(program).fusion.nodes, 3u);
  EXPECT_EQ(program.counters().compiled_kernels, 1u);
}

TEST_F(Fusion, ProfilersShowTheOpsOfAKernel) {
  Graph g;
  g.output("z", tanh(g.value(Variable("x", Tensor::uniform({100}, 1))) * 2.0 + 1.0));
  Program program = compile(g, {.target = cuda(0)});
  for (int i = 0; i < 2; ++i) program.run();
  const std::string file = folder_ / "names.jsonl";
  try {
    program.write_node_names(file);
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();  // CUPTI is not there
  }
  std::ifstream names(file);
  const std::string text{std::istreambuf_iterator<char>(names), std::istreambuf_iterator<char>()};
  EXPECT_NE(text.find("fused_mul_add_tanh"), std::string::npos) << text;
}

#ifdef GRAPHSINK_EMULATED
TEST_F(Fusion, AKernelThatCannotBeLoadedIsAnErrorAndLeavesNothingBehind) {
  emu::reset();
  const std::size_t before = emu::live_objects().libraries;
  std::optional<Graph> g(std::in_place);
  g->output("z", tanh(g->value(Variable("x", Tensor::uniform({100}, 1))) * 2.0 + 1.0));
  for (const char* call : {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN",
                           "cudaLibraryLoadData", "cudaLibraryGetKernel"}) {
    std::string error;
    emu::fail(call, 1, cudaErrorMemoryAllocation);
    try {
      Program program = compile(*g, {.target = cuda(0)});
      program.run();
      program.sync();
    } catch (const Error& e) {
      error = e.what();
    }
    emu::clear_faults();
    EXPECT_NE(error.find(std::string(call) + " returned"), std::string::npos) << call << ": " << error;
    EXPECT_EQ(emu::live_objects().libraries, before) << call;
  }
  std::string logged;
  auto log = [&](LogLevel, std::string_view message) { logged += message; };
  {
    Program program = compile(*g, {.target = cuda(0), .log = log});
    program.run(interactive_serial);
    EXPECT_EQ(emu::live_objects().libraries, before + 1);
  }
  EXPECT_EQ(logged, "");
  // What is in the cache now cannot be loaded: it is compiled again, and the log says so.
  emu::fail("cudaLibraryLoadData", 1, cudaErrorMemoryAllocation);
  {
    Program program = compile(*g, {.target = cuda(0), .log = log});
    program.run(interactive_serial);
    EXPECT_EQ(program.counters().compiled_kernels, 1u);
  }
  EXPECT_NE(logged.find("cudaLibraryLoadData returned"), std::string::npos) << logged;
  logged.clear();
  emu::fail("cudaLibraryUnload", 1, cudaErrorUnknown, true);
  g.reset();  // its Variable has kept the device
  EXPECT_NE(logged.find("cudaLibraryUnload"), std::string::npos) << logged;
  emu::clear_faults();
}
#endif

TEST_F(Fusion, WithoutACompilerOpsStaySeparate) {
#ifdef GRAPHSINK_EMULATED
  auto make = [](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({10}, 1)));
    g.output("z", tanh(x * 2.0 + 1.0));
  };
  for (const char* compiler : {"", "/nonexistent/g++"}) {
    set_compiler(compiler);
    Plan plan = expect_same_bits(make);
    EXPECT_EQ(ops_of(plan), "mul add tanh");
    EXPECT_NE(plan.explain().find("element-wise ops stay separate: nvrtcVersion returned"), std::string::npos)
        << plan.explain();
  }
  set_compiler();
  Graph g;
  make(g);
  for (const Program& program : {compile(g, {.target = cuda(0), .tuning = {.fuse = false}}),
                                 compile(g, {.target = cuda(0), .check_finite = true})}) {
    EXPECT_EQ(plan_of(program).fusion.nodes, 0u);
    EXPECT_EQ(plan_of(program).explain().find("stay separate"), std::string::npos);
  }
#endif
}

// The real compiler needs no GPU: what the software device runs must compile for one, too.
// Needs NVRTC and no GPU.
TEST(FusedSources, EveryOneCompilesWithNvrtc) {
  Nvrtc compiler("libnvrtc.so.13");
  if (std::string obstacle = compiler.obstacle(90); !obstacle.empty()) GTEST_SKIP() << obstacle;
  std::size_t compiled = 0;
  auto compile_groups = [&](const std::function<void(Graph&)>& make) {
    Graph g;
    make(g);
    Target target = Target::cuda13();
    target.compiles_kernels = true;
    for (const PlanNode& node : make_plan(g, target, system_ops()).nodes) {
      const auto* group = node.attrs.get_if<FusedAttrs>();
      if (!group) continue;
      const KernelSource source = fused_kernel_source(*group, node.types).source;
      const auto result = compiler.compile(source.text, "kernel.cu", source.headers,
                                           {"-std=c++20", "-arch=sm_90", "-fmad=false", "-default-device"});
      EXPECT_EQ(result.problem, "") << source.text;
      EXPECT_FALSE(result.code.empty());
      ++compiled;
    }
  };
  std::size_t second = 0;
  for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8, boolean})
    compile_groups([&](Graph& g) { build_all(g, dtype, kSeconds[second++ % kSeconds.size()]); });
  EXPECT_GE(compiled, 8u);
  compiled = 0;
  for (std::int64_t width : {8, 80, 800})  // a thread, a warp, a block
    for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8, boolean})
      compile_groups([&](Graph& g) { build_reductions(g, dtype, 10, width); });
  EXPECT_EQ(compiled, 24u);
}

}  // namespace
}  // namespace graphsink::testing::cuda_fused_kernel_test
