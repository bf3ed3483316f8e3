// Graph, Value, Variable, Arg: the computation. Handles are cheap to copy; a Value keeps its graph alive.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/tensor.h"
#include "graphsink/type.h"

namespace graphsink {

struct GraphData;
struct EagerStorage;
struct VariableData;

// Where the user wants a node to run. `anywhere` (default): where it has a body; where that leaves a choice, such that
// the fewest bytes cross between host and device; where that leaves a choice, on the device. Inputs, feeds, Variables,
// outputs, records and predicates live on the device. A label that no body can serve is refused by compile().
enum class Place : std::uint8_t { anywhere, cpu, device };
struct Label {
  Place place = Place::anywhere;
  int device = 0;  // which one of the program, if place is `device`
  // on_device(1): the first of CompileOptions::further_devices.
  constexpr Label operator()(int number) const { return {place, number}; }
  friend bool operator==(const Label&, const Label&) = default;
};
inline constexpr Label on_cpu{Place::cpu};
inline constexpr Label on_device{Place::device};  // the program's: on a program for cpu() nothing changes

// One output of one node.
class Value {
 public:
  // Refers to nothing, as does one that was moved from: valid() is false and everything else throws Error.
  Value() = default;
  Value(std::shared_ptr<GraphData> graph, int node, int output, std::shared_ptr<EagerStorage> eager = nullptr)
      : graph_(std::move(graph)), node_(node), output_(output), eager_(std::move(eager)) {}

  bool valid() const { return graph_ != nullptr; }
  // A copy: the graph's own storage moves as it grows. Dimensions that depend on an open dimension of an input are
  // open.
  TensorType type(Where where = Where::current()) const;
  DType dtype(Where where = Where::current()) const { return type(where).dtype; }
  Shape shape(Where where = Where::current()) const { return type(where).shape; }

  // For the library's own layers.
  const std::shared_ptr<GraphData>& graph() const { return graph_; }
  int node() const { return node_; }
  int output() const { return output_; }
  const std::shared_ptr<EagerStorage>& eager() const { return eager_; }

 private:
  std::shared_ptr<GraphData> graph_;
  int node_ = -1;
  int output_ = 0;
  std::shared_ptr<EagerStorage> eager_;  // only for Values of an Eager
};

// State that lives across runs and may be used by several graphs. A handle: copies name the same state. Any thread may
// call read() and write(), whatever the threads of programs that use it do meanwhile: they see, and fall between, whole
// runs. The body of an op must not call them (Error), as it is a part of a run.
class Variable {
 public:
  // Refers to nothing, as does one that was moved from: valid() is false and everything else throws Error.
  Variable() = default;
  explicit Variable(std::string name, Tensor initial, Where where = Where::current());

  bool valid() const { return data_ != nullptr; }
  const std::string& name(Where where = Where::current()) const;
  const TensorType& type(Where where = Where::current()) const;
  // Waits for the programs that use it and copies the data to the host. Throws Error on a lost device, while it holds a
  // part of a step whose commit broke off (see Program), and once for a failed step that would have written it, if
  // nobody was told of that yet (see Program::sync()): the value is then that of the last step that was committed.
  Tensor read(Where where = Where::current()) const;
  // Likewise, from the host. Throws Error unless the type is the Variable's.
  void write(const Tensor& tensor, Where where = Where::current());

  const std::shared_ptr<VariableData>& data() const { return data_; }
  friend bool operator==(const Variable& a, const Variable& b) { return a.data_ == b.data_; }

 private:
  std::shared_ptr<VariableData> data_;
};

// What ops take: a Value, a Variable (read: its assigned Value if assign() came before) or a number. A number takes the
// dtype of the first other operand that is not boolean, if there is one, and is rounded to it; one that the dtype
// cannot hold is refused: a fraction beside integers, or a number outside the range of the dtype. So is an integer that
// a double cannot hold. Records the user's line.
class Arg {
 public:
  Arg(Value value, Where where = Where::current());                                  // NOLINT: implicit, as are
  Arg(Variable variable, Where where = Where::current());                            // NOLINT: all of these
  Arg(double number, Where where = Where::current());                                // NOLINT
  Arg(float number, Where where = Where::current()) : Arg(double{number}, where) {}  // NOLINT
  template <std::integral T>
  Arg(T number, Where where = Where::current()) : Arg(exactly(number, where), where) {}  // NOLINT
  // Out of line: inlined into users' code, g++ 12 warns of the variant's unused members.
  Arg(const Arg&);
  Arg(Arg&&) noexcept;
  Arg& operator=(const Arg&);
  Arg& operator=(Arg&&) noexcept;
  ~Arg();

  const std::variant<Value, Variable, double>& content() const { return content_; }
  const Where& where() const { return where_; }

 private:
  // Throw Error unless the double is the same number.
  static double exactly(std::int64_t number, const Where& where);
  static double exactly(std::uint64_t number, const Where& where);
  template <std::integral T>
  static double exactly(T number, const Where& where) {
    if constexpr (std::unsigned_integral<T>) {
      return exactly(std::uint64_t{number}, where);
    } else {
      return exactly(std::int64_t{number}, where);
    }
  }

  std::variant<Value, Variable, double> content_;
  Where where_;
};

// One dimension of a graph input: a number, or open: its size comes with each write. Until then it is the `example`,
// with which the graph is built, so one that all ops can take; dim() is the size as a Value.
struct Dim {
  std::int64_t size = 0;
  bool is_open = false;
  Dim(std::int64_t n) : size(n) {}  // NOLINT: implicit
  Dim(int n) : size(n) {}           // NOLINT: implicit
  Dim(std::int64_t n, bool open) : size(n), is_open(open) {}
};
inline Dim open(std::int64_t example) { return Dim(example, true); }

// How Program::read() can get at the values of a record.
struct RecordOptions {
  // How many values wait to be read: the newest ones, rounded up to a power of two, at most kMaxRecordCapacity. Each
  // takes 8 bytes of host memory. 0: kRecordCapacity, or fewer in a graph of many records: those that leave it at 0
  // share 8 MiB.
  std::int64_t capacity = 0;
};
constexpr std::int64_t kRecordCapacity = std::int64_t{1} << 16;
constexpr std::int64_t kMaxRecordCapacity = std::int64_t{1} << 30;

// A computation under construction. Not thread-safe. compile() takes a snapshot: nodes added later are not part of an
// already compiled Program. Every call on one that was moved from throws Error.
class Graph {
 public:
  Graph();
  explicit Graph(std::shared_ptr<GraphData> data) : data_(std::move(data)) {}  // another handle to the same graph

  // Data given by Program::write(), the same for every step of a run. Throws Error, as feed() does, for negative sizes.
  // Where a Shape has open dimensions they are open here, too, and may become of other sizes.
  Value input(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where = Where::current());
  Value input(std::string name, DType dtype, std::span<const Dim> dims, Where where = Where::current());
  Value input(std::string name, DType dtype, const Shape& shape, Where where = Where::current());
  // Data given by Program::write(), one slice of this shape for each step of a run.
  Value feed(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where = Where::current());
  Value feed(std::string name, DType dtype, std::span<const Dim> dims, Where where = Where::current());
  Value feed(std::string name, DType dtype, const Shape& shape, Where where = Where::current());
  // Data frozen into the graph.
  Value constant(Tensor tensor, Where where = Where::current());
  // The Variable's value at the start of the step, or the Value assigned to it.
  Value value(const Variable& variable, Where where = Where::current());
  // i32 scalar: the number of steps committed so far.
  Value step(Where where = Where::current());
  // As the function assign() below, for a Variable or a number, too, which do not say of which graph the step is. A
  // number becomes every element.
  void assign(const Variable& variable, Arg value);

  // Keeps `value`, a float scalar, for every step; Program::read(name) returns those of all steps since it was called
  // last, as far as `options` leave room for them. Throws Error for a second record of one name, another type, or a
  // negative capacity.
  void record(std::string name, Arg value, const RecordOptions& options = {});
  // Makes `value` readable by name after a run.
  void output(std::string name, Arg value);

  const std::shared_ptr<GraphData>& data() const { return data_; }

 private:
  std::shared_ptr<GraphData> data_;
};

// `variable` takes the value of `value` when the step commits; reads of it in this graph from here on see `value`.
// Types must agree. Throws Error inside a body of while_ or if_ (return the value from the body instead), and for a
// Variable or a number, which belong to no graph: Graph::assign() takes those.
void assign(const Variable& variable, Arg value);

}  // namespace graphsink
