#include "kernels/runtime/fused_source.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/at.h"
#include "ir/call_of_op.h"
#include "kernels/reduce/reduction.h"

namespace graphsink {
namespace {

std::string element_type(DType dtype) {
  std::string name;
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(
      dtype, [&]<class T>() { name = type_name<T>(); });
  return name;
}

bool is_reduction(const FusedOp& op) { return op.rows != nullptr; }

using Strides = std::vector<std::int64_t>;

// Which element of a tensor belongs to element i of the results of the group.
enum class Place : std::uint8_t {
  own,      // element i
  single,   // the only one
  strided,  // another one, at an offset that the kernel computes: of operands that are broadcast, and of operands and
            // results that lie within a larger tensor
};

// How the kernel reads an operand or writes a result.
struct Access {
  int tensor = 0;  // the number of an input or output of the node
  DType dtype = DType::f32;
  Place place = Place::own;
  Strides strides;         // along the dimensions of the results that are not 1
  std::int64_t first = 0;  // added to the offset
  int offset = -1;         // if it is strided: the number of its offset

  bool is_same(const Access& other) const {
    return tensor == other.tensor && place == other.place && strides == other.strides && first == other.first;
  }
};

class Writing {
 public:
  Writing(const FusedAttrs& attrs, std::span<const TensorType> types) : attrs_(attrs) {
    inputs_ = attrs.places.empty() ? types.size() - attrs.outputs.size() : count_inputs();
    outputs_ = types.size() - inputs_;
    size_ = shape().size();
    if (attrs.width > 0) row_by_ = choose_row_kernel();
    for (const FusedOp& op : attrs.ops) find_reads(op);
    for (std::size_t j = 0; j < attrs.outputs.size(); ++j) {
      (is_reduction(op_of_output(j)) ? reductions_ : stored_).push_back(j);
      writes_.push_back(write_of(j));
    }
    add_dimensions();
  }

  FusedKernelSource run() {
    const LaunchSize launch = launch_size_of_group();
    FusedKernelSource made;
    made.source = {kernel_name(), text(), run_time_headers()};
    made.words.push_back(size_);
    if (attrs_.width > 0) made.words.insert(made.words.end(), {rows(), attrs_.width});
    made.words.insert(made.words.end(), dims_.begin(), dims_.end());
    made.words.insert(made.words.end(), firsts_.begin(), firsts_.end());
    for (const Strides& strides : offsets_) made.words.insert(made.words.end(), strides.begin(), strides.end());
    made.grid = launch.grid;
    made.block = launch.block;
    return made;
  }

 private:
  using By = ReductionPlan::By;

  static std::string number(std::size_t n) { return std::to_string(n); }
  // The number of operands that lie within inputs of the node.
  std::size_t operands() const { return attrs_.places.size() - attrs_.outputs.size(); }
  std::size_t count_inputs() const {
    int count = 0;
    for (std::size_t i = 0; i < operands(); ++i) count = std::max(count, attrs_.places[i].tensor + 1);
    return at(count);
  }

  // Shape of all results except those of reductions.
  const Shape& shape() const { return attrs_.ops.front().types.back().shape; }
  const FusedOp& op_of_output(std::size_t j) const { return attrs_.ops[at(attrs_.outputs[j])]; }
  std::string output_type(std::size_t j) const { return element_type(op_of_output(j).types.back().dtype); }

  std::int64_t rows() const { return size_ / attrs_.width; }

  // Threads (one, a warp or a block) that would share a row in a kernel that only reduces these rows.
  By choose_row_kernel() const {
    const bool is_reduced[Shape::kMaxRank] = {false, true};
    const ReductionPlan plan = plan_reduction(Shape{rows(), attrs_.width}, is_reduced);
    if (plan.parts > 1) throw std::logic_error("several blocks would share a row, see are_enough_rows()");
    return plan.by;
  }

  LaunchSize launch_size_of_group() const {
    if (attrs_.width == 0) return launch_size(offsets_.empty() ? (size_ + kPack - 1) / kPack : size_);
    if (row_by_ == By::block) return {{static_cast<unsigned>(rows())}, {static_cast<unsigned>(kBlock)}};
    return launch_size(row_by_ == By::warp ? rows() * kWarp : rows());
  }

  void find_reads(const FusedOp& op) {
    const Shape& result = is_reduction(op) ? op.types.front().shape : op.types.back().shape;
    std::vector<int> of_op;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const int input = op.operands[i].input;
      of_op.push_back(input < 0 ? -1 : add(access(input, at(input), op.types[i], result)));
    }
    reads_of_.push_back(std::move(of_op));
  }

  Access write_of(std::size_t j) const {
    const TensorType& type = op_of_output(j).types.back();
    const std::size_t place = attrs_.places.empty() ? 0 : operands() + j;
    return access(static_cast<int>(j), place, type, is_reduction(op_of_output(j)) ? type.shape : shape());
  }

  // How the elements of a result of this shape find theirs in a tensor of this type, which is broadcast to the result.
  // `number` is that of the tensor among the inputs or outputs, unless `places` says where it lies.
  Access access(int number, std::size_t place, const TensorType& type, const Shape& result) const {
    const bool is_whole = attrs_.places.empty();
    const Strided lies = is_whole ? Strided::whole(type.shape, number) : attrs_.places[place];
    Access found{lies.tensor, type.dtype, Place::own, {}, lies.first, -1};
    Strides dense;
    std::int64_t stride = 1;
    for (int d = result.rank() - 1; d >= 0; --d) {
      if (result[d] == 1) continue;
      const int own = d - (result.rank() - type.shape.rank());
      const bool is_repeated = own < 0 || type.shape[own] == 1;
      found.strides.insert(found.strides.begin(), is_repeated ? 0 : lies.strides[at(own)]);
      dense.insert(dense.begin(), stride);
      stride *= result[d];
    }
    if (found.first == 0 && found.strides == dense) return found;
    const bool is_single = std::all_of(found.strides.begin(), found.strides.end(), [](auto s) { return s == 0; });
    found.place = is_single && found.first == 0 ? Place::single : Place::strided;
    return found;
  }

  int add(Access read) {
    const auto found =
        std::find_if(reads_.begin(), reads_.end(), [&](const Access& known) { return known.is_same(read); });
    if (found == reads_.end()) {
      reads_.push_back(std::move(read));
      return static_cast<int>(reads_.size()) - 1;
    }
    return static_cast<int>(found - reads_.begin());
  }

  // Finds the dimensions over which the kernel walks: neighbours along which all strided accesses go on evenly are one.
  void add_dimensions() {
    std::vector<Access*> strided;
    for (std::vector<Access>* accesses : {&reads_, &writes_}) {
      for (Access& access : *accesses) {
        if (access.place != Place::strided) continue;
        access.offset = static_cast<int>(strided.size());
        strided.push_back(&access);
        firsts_.push_back(access.first);
      }
    }
    offsets_.resize(strided.size());
    if (strided.empty()) return;
    std::size_t from = 0;  // counts the dimensions that are not 1
    for (int d = 0; d < shape().rank(); ++d) {
      if (shape()[d] == 1) continue;
      bool goes_on = !dims_.empty();
      for (std::size_t k = 0; k < strided.size(); ++k)
        goes_on = goes_on && offsets_[k].back() == strided[k]->strides[from] * shape()[d];
      if (goes_on) {
        dims_.back() *= shape()[d];
      } else {
        dims_.push_back(shape()[d]);
      }
      for (std::size_t k = 0; k < strided.size(); ++k) {
        if (goes_on) offsets_[k].pop_back();
        offsets_[k].push_back(strided[k]->strides[from]);
      }
      ++from;
    }
    if (dims_.empty()) {  // results of one element
      dims_.push_back(1);
      for (Strides& strides : offsets_) strides.push_back(0);
    }
  }

  // Profilers show it.
  std::string kernel_name() const {
    constexpr std::size_t kNamed = 6;
    std::string name = "fused";
    for (std::size_t k = 0; k < std::min(attrs_.ops.size(), kNamed); ++k) {
      name += "_";
      for (char c : attrs_.ops[k].op->name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    }
    if (attrs_.ops.size() > kNamed) name += "_and_" + number(attrs_.ops.size() - kNamed) + "_more";
    return name;
  }

  std::string text() const {
    std::string text = "#include \"kernels/reduce/operations.h\"\n\nnamespace graphsink {\n\n" + parameters();
    for (std::size_t k = 0; k < attrs_.ops.size(); ++k)
      if (!is_reduction(attrs_.ops[k])) text += function(k);
    return text + compute() + "\n}  // namespace graphsink\n\nusing namespace graphsink;\n" + kernel();
  }

  std::string parameters() const {
    std::string text = "struct Parameters {\n  const void* in[" + number(std::max<std::size_t>(inputs_, 1)) + "];\n";
    text += "  void* out[" + number(outputs_) + "];\n  std::int64_t size;\n";
    if (attrs_.width > 0) text += "  std::int64_t rows, width;\n";
    if (!offsets_.empty())
      text += "  Offsets<" + number(offsets_.size()) + ", " + number(dims_.size()) + "> offsets;\n";
    return text + "};\n";
  }

  // The expression of an op as a function.
  std::string function(std::size_t k) const {
    static constexpr const char* kNames[][3] = {{"x"}, {"a", "b"}, {"a", "b", "c"}};
    const FusedOp& op = attrs_.ops[k];
    const std::string_view computed =
        call_of_op(op.op->name, op.where, "Elements::type", [&] { return op.op->elements.type(op.types); });
    const std::string result = element_type(op.types.back().dtype);
    std::string text = "\n// " + std::string(op.op->name) + "\n__device__ inline " + result + " op" + number(k) + "(";
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const std::string type = computed.empty() ? element_type(op.types[i].dtype) : std::string(computed);
      text += (i == 0 ? "" : ", ") + type + " " + kNames[op.operands.size() - 1][i];
    }
    text += ") {\n";
    if (!computed.empty()) text += "  using T [[maybe_unused]] = " + std::string(computed) + ";\n";
    text += "  using R [[maybe_unused]] = " + result + ";\n";
    return text + "  return static_cast<R>(" + std::string(op.op->elements.text) + ");\n}\n";
  }

  // Where the element is that an op reads as its operand i, in compute().
  std::string operand(std::size_t k, std::size_t i) const {
    const int from = attrs_.ops[k].operands[i].op;
    return from >= 0 ? "v" + number(at(from)) : "in" + number(at(reads_of_[k][i]));
  }

  // A function that computes, of one element of each input that is read, one element of each output or, of outputs that
  // are reductions, the term.
  std::string compute() const {
    std::string text = "\n__device__ inline void compute(";
    for (std::size_t r = 0; r < reads_.size(); ++r) text += element_type(reads_[r].dtype) + " in" + number(r) + ", ";
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j)
      text += (j == 0 ? "" : ", ") + element_type_of(j) + "& out" + number(j);
    text += ") {\n";
    for (std::size_t k = 0; k < attrs_.ops.size(); ++k) {
      const FusedOp& op = attrs_.ops[k];
      if (is_reduction(op)) continue;
      text += "  const " + element_type(op.types.back().dtype) + " v" + number(k) + " = op" + number(k);
      for (std::size_t i = 0; i < op.operands.size(); ++i) text += (i == 0 ? "(" : ", ") + operand(k, i);
      text += ");\n";
    }
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j) {
      const auto k = at(attrs_.outputs[j]);
      text += "  out" + number(j) + " = " + (is_reduction(attrs_.ops[k]) ? operand(k, 0) : "v" + number(k)) + ";\n";
    }
    return text + "}\n";
  }

  // Type of an element of output j or, if the output is a reduction, of a term.
  std::string element_type_of(std::size_t j) const {
    return is_reduction(op_of_output(j)) ? element_type(op_of_output(j).types.front().dtype) : output_type(j);
  }

  // The kernel. Its loops and the threads that share them are those of kernels/support/threads.h.
  std::string kernel() const {
    const bool has_packs = attrs_.width == 0 && offsets_.empty();
    return "\nextern \"C\" __global__ void " + kernel_name() + "(const Parameters p) {\n  wait_for_inputs();\n" +
           (attrs_.width > 0 ? over_rows()
            : has_packs      ? over_packs()
                             : over_elements()) +
           "}\n";
  }

  std::string declared_outputs(const std::string& indent, bool are_packs) const {
    std::string text;
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j) {
      const std::string type = element_type_of(j);
      text += indent + (are_packs ? "Pack<" + type + ">" : type) + " out" + number(j) + ";\n";
    }
    return text;
  }

  // An expression for the index of an access, where i is the element of the results.
  static std::string index(const Access& access) {
    return access.place == Place::own      ? "i"
           : access.place == Place::single ? "0"
                                           : "offsets[" + number(at(access.offset)) + "]";
  }

  std::string element(const Access& read) const {
    return "static_cast<const " + element_type(read.dtype) + "*>(p.in[" + number(at(read.tensor)) + "])[" +
           index(read) + "]";
  }

  // Element `index` of output j.
  std::string stored(std::size_t j, const std::string& index) const {
    return "static_cast<" + output_type(j) + "*>(p.out[" + number(at(writes_[j].tensor)) + "])[" + index + "]";
  }

  // Statements that compute element i of all outputs, store it and leave the terms of reductions in out0, out1, ...
  std::string element_body(const std::string& indent) const {
    std::string text;
    if (!offsets_.empty())
      text += indent + "std::int64_t offsets[" + number(offsets_.size()) + "];\n" + indent +
              "p.offsets.find(i, offsets);\n";
    text += declared_outputs(indent, false) + indent + "compute(";
    for (const Access& read : reads_) text += element(read) + ", ";
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j) text += (j == 0 ? "out" : ", out") + number(j);
    text += ");\n";
    for (std::size_t j : stored_) text += indent + stored(j, index(writes_[j])) + " = out" + number(j) + ";\n";
    return text;
  }

  std::string over_elements() const {
    return "  for_each_element(p.size, [&](std::int64_t i) {\n" + element_body("    ") + "  });\n";
  }

  std::string over_packs() const {
    std::string text = "  const auto of_pack = [&](std::int64_t k) {\n";
    for (std::size_t r = 0; r < reads_.size(); ++r) {
      const std::string type = element_type(reads_[r].dtype);
      text += "    const " + (reads_[r].place == Place::own
                                  ? "Pack<" + type + "> in" + number(r) + " = static_cast<const Pack<" + type +
                                        ">*>(p.in[" + number(at(reads_[r].tensor)) + "])[k];\n"
                                  : type + " in" + number(r) + " = " + element(reads_[r]) + ";\n");
    }
    text += declared_outputs("    ", true) + "    for (int j = 0; j < kPack; ++j)\n      compute(";
    for (std::size_t r = 0; r < reads_.size(); ++r)
      text += "in" + number(r) + (reads_[r].place == Place::own ? ".elements[j], " : ", ");
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j)
      text += (j == 0 ? "out" : ", out") + number(j) + ".elements[j]";
    text += ");\n";
    for (std::size_t j = 0; j < attrs_.outputs.size(); ++j)
      text += "    static_cast<Pack<" + output_type(j) + ">*>(p.out[" + number(at(writes_[j].tensor)) + "])[k] = out" +
              number(j) + ";\n";
    return text + "  };\n  for_each_pack(p.size, of_pack, [&](std::int64_t i) {\n" + element_body("    ") + "  });\n";
  }

  // As the kernel reduce() in kernels/reduce/reduction.h, with the same threads. Terms are combined in the same order.
  std::string over_rows() const {
    const char* threads = row_by_ == By::thread ? "ByThread" : row_by_ == By::warp ? "ByWarp" : "ByBlock";
    std::string text = "  using Group = " + std::string(threads) + ";\n  const std::int64_t width = p.width;\n";
    for (std::size_t j : reductions_) {
      const FusedOp& op = op_of_output(j);
      const std::string operation = op.rows->operation(op.types.front().dtype, op.attrs);
      text += "  const auto operation" + number(j) + " = " + operation + ";\n";
      text += "  using Operation" + number(j) + " = decltype(" + operation + ");\n";
    }
    text += "  for (std::int64_t row = Group::first_row(); row < p.rows; row += Group::stride()) {\n";
    for (std::size_t j : reductions_) text += "    auto all" + number(j) + " = Operation" + number(j) + "::none();\n";
    text += "    for (std::int64_t k = Group::lane(); k < width; k += Group::kSize) {\n";
    text += "      const std::int64_t i = row * width + k;\n" + element_body("      ");
    for (std::size_t j : reductions_) {
      const std::string n = number(j);
      text += "      all" + n + " = Operation" + n + "::add(all" + n + ", static_cast<Operation" + n + "::Term>(out" +
              n + "), k);\n";
    }
    text += "    }\n";
    for (std::size_t j : reductions_) {
      const std::string n = number(j);
      text += "    all" + n + " = Group::join<Operation" + n + ">(all" + n + ");\n";
      text += "    if (Group::lane() == 0) " + stored(j, "row") + " = static_cast<" + output_type(j) + ">(operation" +
              n + ".result(all" + n + "));\n";
    }
    return text + "  }\n";
  }

  const FusedAttrs& attrs_;
  std::size_t inputs_ = 0, outputs_ = 0;  // numbers of inputs and outputs of the node
  std::int64_t size_ = 0;
  std::vector<Access> reads_;
  std::vector<Access> writes_;              // by result of the group
  std::vector<std::vector<int>> reads_of_;  // by op and operand: an index into reads_, or -1
  std::vector<std::int64_t> dims_;          // empty if no access is strided
  // By strided access: strides along dims_, and what is added.
  std::vector<Strides> offsets_;
  std::vector<std::int64_t> firsts_;
  // Results: those that are stored element by element, and those that are reductions, one element a row.
  std::vector<std::size_t> stored_, reductions_;
  By row_by_ = By::thread;
};

}  // namespace

FusedKernelSource fused_kernel_source(const FusedAttrs& attrs, std::span<const TensorType> types) {
  return Writing(attrs, types).run();
}

}  // namespace graphsink
