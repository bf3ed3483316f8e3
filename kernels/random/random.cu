// random_uniform, random_normal, randint, dropout. Each element is a function of the seed, the node, the step, the
// iterations of loops (RandomSource) and its own number, counted in the whole of which its tensor is a part, so it is
// the same in every mode and order of execution. The gradient of dropout makes the mask of the forward node again.
#include <optional>

#include "base/convert.h"
#include "base/number_text.h"
#include "base/philox.h"
#include "base/random_part.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"
#include "kernels/file_ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

// --- where a node draws from

// The key of Philox is the program's seed and the node's number in its graph; the counter is a block of elements, the
// step, and the iterations of the innermost loop and of the one around it, 0 without.
constexpr int kMaxRandomLoops = 2;
constexpr std::int64_t kMaxRandomElements = std::int64_t{1} << 33;  // two f64 from each of 2^32 blocks

// Operands from `first` on: the step and the seed, then the iterations of the loops around, the innermost first.
struct RandomSource {
  const std::int32_t* state = nullptr;
  const std::int32_t* loops[kMaxRandomLoops] = {};
  std::uint32_t node = 0;

  RandomSource(const BodyArgs& a, int first, std::uint32_t from) : state(a.in<std::int32_t>(first)), node(from) {
    for (int i = first + 1; i < a.inputs(); ++i) loops[i - first - 1] = a.in<std::int32_t>(i);
  }

  // The key and the counter of block 0.
  HD PhiloxKey key() const { return {{static_cast<std::uint32_t>(state[1]), node}}; }
  HD PhiloxWords counter() const {
    PhiloxWords counter{{0, static_cast<std::uint32_t>(state[0]), 0, 0}};
    for (int i = 0; i < kMaxRandomLoops; ++i)
      if (loops[i] != nullptr) counter.at[i + 2] = static_cast<std::uint32_t>(*loops[i]);
    return counter;
  }
};

// A counter has room for the iterations of kMaxRandomLoops loops.
void check_loops(const GraphData& graph, std::string_view op, const Where& where) {
  std::vector<std::string> loops;  // that the user wrote, the innermost first
  int count = 0;
  for (int r = graph.current_region; r > 0; r = graph.regions[at(r)].parent) {
    const Region& region = graph.regions[at(r)];
    if (!region.is_loop) continue;
    ++count;
    if (region.is_of_segments && !loops.empty()) {
      loops.back() += " (two, because of recompute)";
    } else {
      loops.push_back(to_string(region.where));
    }
  }
  if (count <= kMaxRandomLoops) return;
  std::string text;
  for (const std::string& loop : loops) text = loop + (text.empty() ? "" : ", " + text);
  const bool is_recompute = at(count) > loops.size();
  throw Error(std::string(op), where,
              "random numbers in more than two loops, one in the other; the loops around it: " + text,
              std::string("draw them outside the innermost") + (is_recompute ? ", or leave recompute out" : ""));
}

std::vector<Value> sources_of(GraphData& graph, std::string_view op, const Where& where) {
  check_loops(graph, op, where);
  return graph.random_sources([&](const Value& iteration) { return add(Arg(iteration, where), 1); }, where);
}

// The operand itself, then the source.
std::vector<Arg> random_operands(std::string_view op, const Arg& first) {
  std::vector<Arg> operands{first};
  const auto* value = std::get_if<Value>(&first.content());
  if (value == nullptr || !value->valid()) return operands;  // emit() refuses them
  for (const Value& source : sources_of(*value->graph(), op, first.where())) operands.emplace_back(source);
  return operands;
}

// A whole that is divided along an axis other than the first must have that axis, and no more elements than an op
// draws.
void expect_whole(InferArgs& a, const Shape& shape, const PartOfWhole& part) {
  if (part.parts < 1 || part.number < 0 || part.number >= part.parts) {
    a.fail("there is no part " + std::to_string(part.number) + " of " + std::to_string(part.parts),
           "count parts from 0");
  }
  if (part.parts == 1) return;
  if (part.axis < 1 || part.axis >= shape.rank()) {
    a.fail("RandomPart divides axis " + std::to_string(part.axis) + ", which " + to_string(shape) + " does not have",
           "end the RandomPart in front of the op, or name an axis of the tensor");
  }
  if (shape.size() > 0 && part.parts > kMaxRandomElements / shape.size()) {
    a.fail(std::to_string(part.parts) + " parts of " + to_string(shape) + " have more than 2^33 random numbers",
           "draw them in parts");
  }
}

// The source stands behind the first operand.
void expect_random(InferArgs& a, const Shape& shape, const PartOfWhole& part) {
  if (a.inputs() < 2 || a.inputs() > 2 + kMaxRandomLoops)
    a.fail("takes one operand and a source", "draw outside of loops");
  a.expect_input(1, TensorType{DType::i32, {2}});
  for (int i = 2; i < a.inputs(); ++i) a.expect_input(i, TensorType{DType::i32, {}});
  if (shape.size() > kMaxRandomElements) a.fail("more than 2^33 random numbers at once", "draw them in parts");
  expect_whole(a, shape, part);
  if (part.rank_nodes < 0)
    a.fail("there are " + std::to_string(part.rank_nodes) + " nodes of ranks", "count those in front of the op");
  if (part.first < 0 || (shape.size() > 0 && part.first >= kMaxRandomElements / (shape.size() * part.parts))) {
    a.fail("part " + std::to_string(part.first) + " is beyond the first 2^33 random numbers",
           "divide them into fewer parts");
  }
}

// --- distributions: kPerBlock<T> elements are made of the four words of a block

template <class T>
constexpr int kPerBlock = std::is_same_v<T, float> ? 4 : 2;

template <class T>
HD void units(const PhiloxWords& w, T (&u)[kPerBlock<T>]) {
  if constexpr (std::is_same_v<T, double>) {
    for (int i = 0; i < 2; ++i) u[i] = unit_double(w.at[2 * i], w.at[2 * i + 1]);
  } else {
    for (int i = 0; i < 4; ++i) u[i] = unit_float(w.at[i]);
  }
}

template <class T>
struct Uniform {
  T low, range;
  HD void make(const PhiloxWords& w, T (&x)[kPerBlock<T>]) const {
    units(w, x);
    for (T& value : x) value = low + range * value;
  }
};

HD void sine_cosine(float x, float& sine, float& cosine) { sine = ::sinf(x), cosine = ::cosf(x); }
HD void sine_cosine(double x, double& sine, double& cosine) { sine = ::sin(x), cosine = ::cos(x); }

// Box & Muller 1958: two of two.
template <class T>
struct Normal {
  T mean, deviation;
  HD void make(const PhiloxWords& w, T (&x)[kPerBlock<T>]) const {
    units(w, x);
    for (int i = 0; i < kPerBlock<T>; i += 2) {
      T radius = math::sqrt(T(-2) * math::log(T(1) - x[i])), sine, cosine;
      sine_cosine(T(6.283185307179586) * x[i + 1], sine, cosine);
      x[i] = mean + deviation * (radius * cosine);
      x[i + 1] = mean + deviation * (radius * sine);
    }
  }
};

// low + floor(range * u / 2^64) for a random u of 64 bits and a range of at most 2^32 (Lemire 2019, "Fast random
// integer generation in an interval", without its rejection): probabilities differ by at most one part in 2^32.
template <class T>
struct Integers {
  std::int64_t low;
  std::uint64_t range;
  HD void make(const PhiloxWords& w, T (&x)[2]) const {
    for (int i = 0; i < 2; ++i) {
      std::uint64_t high_part = w.at[2 * i] * range, low_part = w.at[2 * i + 1] * range;
      x[i] = static_cast<T>(low + static_cast<std::int64_t>((high_part + (low_part >> 32)) >> 32));
    }
  }
};

// Keeps an element where the random word is not below the threshold, whatever the dtype.
template <class T>
struct Mask {
  std::uint32_t threshold;
  T scale;
  HD T apply(T x, std::uint32_t word) const { return word >> 8 >= threshold ? x * scale : T(0); }
};

// --- bodies

// Elements of a tensor that lie one behind the other in the whole, of which it may be a part.
struct Run {
  std::int64_t first, size;  // number of the first element in the whole, and how many there are

  // Blocks of `n` elements of the whole that have elements of this run.
  HD std::int64_t first_block(int n) const { return first / n; }
  HD std::int64_t blocks(int n) const { return size == 0 ? 0 : (first + size + n - 1) / n - first / n; }
  HD bool has(std::int64_t i) const { return i >= 0 && i < size; }
};

// All elements of a tensor: runs of one size, which lie one behind the other in the tensor, and `stride` elements of
// the whole from one another. There is one run unless the whole is divided along an axis other than the first.
struct Drawn {
  Run first_run{0, 0};
  std::int64_t runs = 1, stride = 0;

  Drawn(const PartOfWhole& part, const TensorType& type) {
    const Shape& shape = type.shape;
    if (shape.size() == 0) return;
    if (part.parts > 1)
      for (int axis = 0; axis < part.axis; ++axis) runs *= shape[axis];
    const std::int64_t size = shape.size() / runs;
    stride = part.parts * size;
    first_run = {part.first * runs * stride + part.number * size, size};
  }

  HD Run run(std::int64_t i) const { return {first_run.first + i * stride, first_run.size}; }
  // Blocks that a run has, or at most has, where runs begin at different places of their first blocks.
  HD std::int64_t run_blocks(int n) const {
    return runs == 1 || stride % n == 0 ? first_run.blocks(n) : (first_run.size + n - 2) / n + 1;
  }
  HD std::int64_t blocks(int n) const { return runs * run_blocks(n); }
};

// `block` is counted from the first one of the run, whose elements are those at `x` and `out`.
template <class D, class T>
HD void fill_block(const D& d, PhiloxWords counter, PhiloxKey key, std::int64_t block, T* out, Run run) {
  block += run.first_block(kPerBlock<T>);
  counter.at[0] = static_cast<std::uint32_t>(block);
  T x[kPerBlock<T>];
  d.make(philox(counter, key), x);
  for (int j = 0; j < kPerBlock<T>; ++j) {
    const std::int64_t i = block * kPerBlock<T> + j - run.first;
    if (run.has(i)) out[i] = x[j];
  }
}
template <class T>
HD void mask_block(const Mask<T>& mask, PhiloxWords counter, PhiloxKey key, std::int64_t block, const T* x, T* out,
                   Run run) {
  block += run.first_block(4);
  counter.at[0] = static_cast<std::uint32_t>(block);
  PhiloxWords words = philox(counter, key);
  for (int j = 0; j < 4; ++j) {
    const std::int64_t i = block * 4 + j - run.first;
    if (run.has(i)) out[i] = mask.apply(x[i], words.at[j]);
  }
}

// A thread makes one block of the whole, and writes those of its elements that the run has: two runs that share a block
// both make it.
template <class D, class T>
__global__ void fill_random(RandomSource source, D distribution, T* out, Drawn elements) {
  wait_for_inputs();
  PhiloxWords counter = source.counter();
  PhiloxKey key = source.key();
  const std::int64_t run_blocks = elements.run_blocks(kPerBlock<T>), blocks = elements.runs * run_blocks;
  for (std::int64_t block = thread_index(); block < blocks; block += all_threads()) {
    const std::int64_t run = elements.runs == 1 ? 0 : block / run_blocks;
    fill_block(distribution, counter, key, block - run * run_blocks, out + run * elements.first_run.size,
               elements.run(run));
  }
}
template <class T>
__global__ void drop_elements(RandomSource source, Mask<T> mask, const T* x, T* out, Drawn elements) {
  wait_for_inputs();
  PhiloxWords counter = source.counter();
  PhiloxKey key = source.key();
  const std::int64_t run_blocks = elements.run_blocks(4), blocks = elements.runs * run_blocks;
  for (std::int64_t block = thread_index(); block < blocks; block += all_threads()) {
    const std::int64_t run = elements.runs == 1 ? 0 : block / run_blocks, begin = run * elements.first_run.size;
    mask_block(mask, counter, key, block - run * run_blocks, x + begin, out + begin, elements.run(run));
  }
}

template <class T, class D>
void fill_on(CudaArgs& a, const D& distribution, const PartOfWhole& part) {
  const Drawn elements(part, a.out_type(0));
  a.launch(fill_random<D, T>, launch_size(elements.blocks(kPerBlock<T>)), RandomSource(a, 1, part.node(a.id())),
           distribution, a.out<T>(0), elements);
}
template <class T, class D>
void fill_on(const CpuArgs& a, const D& distribution, const PartOfWhole& part) {
  RandomSource source(a, 1, part.node(a.id()));
  PhiloxWords counter = source.counter();
  PhiloxKey key = source.key();
  const Drawn elements(part, a.out_type(0));
  T* out = a.out<T>(0);
  for (std::int64_t i = 0; i < elements.runs; ++i, out += elements.first_run.size) {
    const Run run = elements.run(i);
    for_each_index(run.blocks(kPerBlock<T>),
                   [=](std::int64_t block) { fill_block(distribution, counter, key, block, out, run); });
  }
}
template <class T>
void drop_on(CudaArgs& a, const RandomSource& source, const Mask<T>& mask, const PartOfWhole& part) {
  const Drawn elements(part, a.out_type(0));
  a.launch(drop_elements<T>, launch_size(elements.blocks(4)), source, mask, a.in<T>(0), a.out<T>(0), elements);
}
template <class T>
void drop_on(const CpuArgs& a, const RandomSource& source, const Mask<T>& mask, const PartOfWhole& part) {
  const Drawn elements(part, a.out_type(0));
  const T* x = a.in<T>(0);
  T* out = a.out<T>(0);
  for (std::int64_t i = 0; i < elements.runs; ++i, x += elements.first_run.size, out += elements.first_run.size) {
    const Run run = elements.run(i);
    for (std::int64_t block = 0; block < run.blocks(4); ++block)
      mask_block(mask, source.counter(), source.key(), block, x, out, run);
  }
}

// --- random_uniform, random_normal. Operand 0 gives the type, unless the attributes do; the others are the source.

// Part is the type of `part`, another one in files of old versions.
template <class Part>
struct RandomFields {
  std::optional<TensorType> type;
  double first, second;  // low and high, mean and deviation
  Part part = {};
  RandomFields<PartOfWhole> now() const { return {type, first, second, {part}}; }
  static auto fields(auto& s) { return std::tie("type", s.type, "first", s.first, "second", s.second, "part", s.part); }
};
using RandomAttrs = RandomFields<PartOfWhole>;

Access random_access(int operand, int) { return operand == 0 ? Access::shape_only : Access::read; }

template <template <class> class D>
constexpr bool is_uniform = std::is_same_v<D<float>, Uniform<float>>;

void expect_float(const InferArgs& a, const char* what, double x, DType dtype) {
  if (!math::is_finite(x) || !holds(dtype, x))
    a.fail(std::string(what) + " is " + number_text(x), "pass a finite number of " + std::string(to_string(dtype)));
}

template <template <class> class D>
void infer_random(InferArgs& a) {
  const auto& attrs = a.attrs<RandomAttrs>();
  a.list_inputs(attrs.type ? 0 : 1);
  TensorType type = attrs.type ? *attrs.type : a.in(0);
  if (!is_float(type.dtype) || is_half(type.dtype))
    a.fail("makes f32 and f64, not " + std::string(to_string(type.dtype)), "cast() the result");
  expect_float(a, is_uniform<D> ? "the lower bound" : "the mean", attrs.first, type.dtype);
  expect_float(a, is_uniform<D> ? "the upper bound" : "the deviation", attrs.second, type.dtype);
  if constexpr (is_uniform<D>) {
    expect_float(a, "the upper bound less the lower", attrs.second - attrs.first, type.dtype);
    if (attrs.first > attrs.second)
      a.fail("the lower bound, " + number_text(attrs.first) + ", is above the upper, " + number_text(attrs.second),
             "change their order");
  } else {
    if (attrs.second < 0) a.fail("the deviation is " + number_text(attrs.second), "pass one of at least 0");
  }
  expect_random(a, type.shape, attrs.part);
  a.out(type.dtype, type.shape);
}

template <template <class> class D, class Args>
void random_body(Args& a) {
  const auto& attrs = a.template attrs<RandomAttrs>();
  double second = is_uniform<D> ? attrs.second - attrs.first : attrs.second;
  if (a.out_type(0).dtype == DType::f32) {
    fill_on<float>(a, D<float>{static_cast<float>(attrs.first), static_cast<float>(second)}, attrs.part);
  } else {
    fill_on<double>(a, D<double>{attrs.first, second}, attrs.part);
  }
}

template <template <class> class D>
constexpr OpDef random_op(std::string_view name) {
  return {.name = name,
          .infer = infer_random<D>,
          .access = random_access,
          .traits = {.random = true, .kernels_wait = true},
          .prepare = load_kernels<fill_random<D<float>, float>, fill_random<D<double>, double>>,
          .bodies = {random_body<D, const CpuArgs>, random_body<D, CudaArgs>}};
}
const OpDef uniform_op = random_op<Uniform>("random_uniform");
const OpDef normal_op = random_op<Normal>("random_normal");

// Operands of an op with attributes that give the type.
std::vector<Arg> random_operands(std::string_view op, const Graph& graph, const Where& where) {
  std::vector<Value> sources = sources_of(data_of(graph, where), op, where);
  // The first operand stands in for `like`. Its type is ignored: attributes give the type.
  std::vector<Arg> operands{Arg(sources[0], where)};
  for (const Value& source : sources) operands.emplace_back(source);
  return operands;
}

// --- randint: operands as above

template <class Part>
struct IntegerFields {
  DType dtype;
  std::optional<Shape> shape;
  std::int64_t low, high;
  Part part = {};
  IntegerFields<PartOfWhole> now() const { return {dtype, shape, low, high, {part}}; }
  static auto fields(auto& s) {
    return std::tie("dtype", s.dtype, "shape", s.shape, "low", s.low, "high", s.high, "part", s.part);
  }
};
using IntegerAttrs = IntegerFields<PartOfWhole>;

void infer_integers(InferArgs& a) {
  const auto& [dtype, shape, low, high, part] = a.attrs<IntegerAttrs>();
  a.list_inputs(shape ? 0 : 1);
  if (dtype != DType::i32 && dtype != DType::i64)
    a.fail("makes i32 and i64, not " + std::string(to_string(dtype)),
           "cast() the result, if the dtype holds the bounds");
  std::string bounds = "[" + std::to_string(low) + ", " + std::to_string(high) + ")";
  if (low >= high) a.fail("there is no integer in " + bounds, "pass an upper bound above the lower");
  if (static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) > std::uint64_t{1} << 32)
    a.fail(bounds + " has more than 2^32 integers", "pass bounds that are closer to one another");
  constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (dtype == DType::i32 && (low < kLeast || high > kMost + 1))
    a.fail("i32 does not hold the integers in " + bounds, "ask for i64");
  expect_random(a, shape ? *shape : a.in(0).shape, part);
  a.out(dtype, shape ? *shape : a.in(0).shape);
}

template <class Args>
void integers_body(Args& a) {
  const auto& [dtype, shape, low, high, part] = a.template attrs<IntegerAttrs>();
  std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (dtype == DType::i32) {
    fill_on<std::int32_t>(a, Integers<std::int32_t>{low, range}, part);
  } else {
    fill_on<std::int64_t>(a, Integers<std::int64_t>{low, range}, part);
  }
}
const OpDef integers_op{.name = "randint",
                        .infer = infer_integers,
                        .access = random_access,
                        .traits = {.random = true, .kernels_wait = true},
                        .prepare = load_kernels<fill_random<Integers<std::int32_t>, std::int32_t>,
                                                fill_random<Integers<std::int64_t>, std::int64_t>>,
                        .bodies = {integers_body<const CpuArgs>, integers_body<CudaArgs>}};

// --- dropout: x, then the source

template <class Part>
struct DropoutFields {
  double probability;
  int node = -1;  // node whose mask is drawn again (backward); -1: this node's
  Part part = {};
  DropoutFields<PartOfWhole> now() const { return {probability, node, {part}}; }
  static auto fields(auto& s) { return std::tie("probability", s.probability, "node", s.node, "part", s.part); }
};
using DropoutAttrs = DropoutFields<PartOfWhole>;

template <class Args>
void dropout_body(Args& a) {
  const auto& attrs = a.template attrs<DropoutAttrs>();
  RandomSource source(a, 1, attrs.part.node(attrs.node >= 0 ? attrs.node : a.id()));
  auto threshold = static_cast<std::uint32_t>(std::ceil(attrs.probability * 0x1p24));
  double scale = 1 / (1 - attrs.probability);
  if (a.out_type(0).dtype == DType::f32) {
    drop_on<float>(a, source, Mask<float>{threshold, static_cast<float>(scale)}, attrs.part);
  } else {
    drop_on<double>(a, source, Mask<double>{threshold, scale}, attrs.part);
  }
}

void infer_dropout(InferArgs& a) {
  const auto& attrs = a.attrs<DropoutAttrs>();
  const double p = attrs.probability;
  a.list_inputs(1);
  expect_dtype<float, double>(a, 0);
  if (!(p >= 0 && p < 1)) a.fail("the probability is " + std::to_string(p), "pass one in [0, 1)");
  expect_random(a, a.in(0).shape, attrs.part);
  a.out(a.in(0).dtype, a.in(0).shape);
}

std::vector<Value> dropout_grad(const GradArgs& a);

constexpr Alias kInPlace[] = {{0, 0}};
const OpDef dropout_op{.name = "dropout",
                       .infer = infer_dropout,
                       .in_place = kInPlace,
                       .traits = {.random = true, .kernels_wait = true},
                       .prepare = load_kernels<drop_elements<float>, drop_elements<double>>,
                       .bodies = {dropout_body<const CpuArgs>, dropout_body<CudaArgs>},
                       .grad = dropout_grad};

std::vector<Value> dropout_grad(const GradArgs& a) {
  DropoutAttrs attrs = a.attrs.as<DropoutAttrs>();
  if (attrs.node < 0) attrs.node = a.node;
  std::vector<Arg> operands{Arg(a.grads[0], a.where)};
  operands.insert(operands.end(), a.inputs.begin() + 1, a.inputs.end());
  std::vector<Value> grads = emit(dropout_op, operands, attrs);
  grads.resize(a.inputs.size());  // none for the source
  return grads;
}

// --- attributes in old files: version 1 knows no parts, and version 2 those along the first axis, by their numbers

struct RandomAttrs1 {
  std::optional<TensorType> type;
  double first, second;
  RandomAttrs now() const { return {type, first, second}; }
  static auto fields(auto& s) { return std::tie("type", s.type, "first", s.first, "second", s.second); }
};
struct IntegerAttrs1 {
  DType dtype;
  std::optional<Shape> shape;
  std::int64_t low, high;
  IntegerAttrs now() const { return {dtype, shape, low, high}; }
  static auto fields(auto& s) { return std::tie("dtype", s.dtype, "shape", s.shape, "low", s.low, "high", s.high); }
};
struct DropoutAttrs1 {
  double probability;
  int node = -1;
  DropoutAttrs now() const { return {probability, node}; }
  static auto fields(auto& s) { return std::tie("probability", s.probability, "node", s.node); }
};

template <class Old>
constexpr FileOp old_version(const OpDef& op, int version) {
  auto read = [](FieldIo& io) -> Attrs {
    Old old{};
    transfer_value(io, old);
    return old.now();
  };
  return {&op, {nullptr, read}, version};
}

// For the op that is emitted next.
PartOfWhole part_in(const GraphData& graph, int rank) {
  PartOfWhole part = part_of_whole(rank);
  part.rank_nodes = static_cast<std::int64_t>(graph.rank_nodes.size());
  return part;
}
PartOfWhole part_in(const Graph& graph, const Shape& shape, const Where& where) {
  return part_in(data_of(graph, where), shape.rank());
}
// An operand that is no Value has no axes: emit() refuses it.
PartOfWhole part_like(const Arg& like) {
  const auto* value = std::get_if<Value>(&like.content());
  return value == nullptr || !value->valid() ? PartOfWhole() : part_in(*value->graph(), value->shape().rank());
}

}  // namespace

Value random_uniform(Arg like, double low, double high, Placement placement) {
  return emit(uniform_op, random_operands(uniform_op.name, like), RandomAttrs{{}, low, high, part_like(like)},
              placement)[0];
}
Value random_uniform(const Graph& graph, DType dtype, Shape shape, double low, double high, Placement placement,
                     Where where) {
  return emit(uniform_op, random_operands(uniform_op.name, graph, where),
              RandomAttrs{TensorType{dtype, shape}, low, high, part_in(graph, shape, where)}, placement)[0];
}
Value random_normal(Arg like, double mean, double deviation, Placement placement) {
  return emit(normal_op, random_operands(normal_op.name, like), RandomAttrs{{}, mean, deviation, part_like(like)},
              placement)[0];
}
Value random_normal(const Graph& graph, DType dtype, Shape shape, double mean, double deviation, Placement placement,
                    Where where) {
  RandomAttrs attrs{TensorType{dtype, shape}, mean, deviation, part_in(graph, shape, where)};
  return emit(normal_op, random_operands(normal_op.name, graph, where), attrs, placement)[0];
}
Value randint(Arg like, std::int64_t low, std::int64_t high, DType dtype, Placement placement) {
  return emit(integers_op, random_operands(integers_op.name, like), IntegerAttrs{dtype, {}, low, high, part_like(like)},
              placement)[0];
}
Value randint(const Graph& graph, DType dtype, Shape shape, std::int64_t low, std::int64_t high, Placement placement,
              Where where) {
  return emit(integers_op, random_operands(integers_op.name, graph, where),
              IntegerAttrs{dtype, shape, low, high, part_in(graph, shape, where)}, placement)[0];
}
Value dropout(Arg x, double probability, Placement placement) {
  return emit(dropout_op, random_operands(dropout_op.name, x), DropoutAttrs{probability, -1, part_like(x)},
              placement)[0];
}

std::span<const FileOp> random_file_ops() {
  using First = std::int64_t;
  static constexpr FileOp ops[] = {old_version<RandomAttrs1>(uniform_op, 1),
                                   old_version<RandomFields<First>>(uniform_op, 2),
                                   file_op<RandomAttrs>(uniform_op, 3),
                                   old_version<RandomAttrs1>(normal_op, 1),
                                   old_version<RandomFields<First>>(normal_op, 2),
                                   file_op<RandomAttrs>(normal_op, 3),
                                   old_version<IntegerAttrs1>(integers_op, 1),
                                   old_version<IntegerFields<First>>(integers_op, 2),
                                   file_op<IntegerAttrs>(integers_op, 3),
                                   old_version<DropoutAttrs1>(dropout_op, 1),
                                   old_version<DropoutFields<First>>(dropout_op, 2),
                                   file_op<DropoutAttrs>(dropout_op, 3)};
  return ops;
}

}  // namespace graphsink
