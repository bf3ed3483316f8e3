// gs.host_op(): Python functions as ops. graphsink/_host_op.py gives them to users.
#include "host_op.h"

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "bindings.h"
#include "interpreter.h"

namespace graphsink::python {

namespace {

thread_local int calls_here = 0;  // calls of functions of host ops, nested

struct InHostOp {
  InHostOp() noexcept { ++calls_here; }
  ~InHostOp() { --calls_here; }
  InHostOp(const InHostOp&) = delete;
  InHostOp& operator=(const InHostOp&) = delete;
};

[[noreturn]] void refuse(const std::string& op, const std::string& problem, const std::string& remedy) {
  throw Error(op, Where(), problem, remedy);
}

// An array of its own with the elements of an operand. NumPy cannot take memory back from an array that a function has
// kept, so functions never see the memory of the program. The array may be written to.
nb::object copy_of(const void* memory, const TensorType& type) {
  if (type.dtype == bf16) {
    Tensor tensor(type);
    if (tensor.bytes() > 0) std::memcpy(tensor.data(), memory, tensor.bytes());
    return to_array(std::move(tensor));
  }
  return aligned_array(memory, type);
}

nb::tuple operands_of(const CpuArgs& a) {
  nb::list all;
  for (int i = 0; i < a.inputs(); ++i) all.append(copy_of(a.in<std::byte>(i), a.in_type(i)));
  return nb::tuple(all);
}

void store_one(const std::string& op, nb::handle result, const TensorType& type, void* to) {
  const Where nowhere;
  Tensor tensor = to_tensor(result, type.dtype, nowhere);
  if (type.dtype == bf16 && tensor.dtype() == f32) tensor = tensor.to(bf16, nowhere);
  if (tensor.type() != type) {
    refuse(op, "the function has returned " + to_string(tensor.type()) + " for an output of " + to_string(type),
           "return arrays of the dtypes and shapes that `out` says, for example with .astype(numpy.float32)");
  }
  if (type.bytes() > 0) std::memcpy(to, tensor.data(), type.bytes());
}

void store_results(const std::string& op, nb::handle result, const CpuArgs& a) {
  if (a.outputs() == 1) return store_one(op, result, a.out_type(0), a.out<std::byte>(0));
  if (a.outputs() == 0) return;
  const bool is_sequence = nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result);
  if (!is_sequence || nb::len(result) != static_cast<std::size_t>(a.outputs())) {
    refuse(op,
           "the function has returned " +
               (is_sequence ? std::to_string(nb::len(result)) + " results"
                            : "a " + nb::cast<std::string>(nb::type_name(result.type()))) +
               " for " + std::to_string(a.outputs()) + " outputs",
           "return a tuple with an array for each output");
  }
  for (int i = 0; i < a.outputs(); ++i) store_one(op, result[i], a.out_type(i), a.out<std::byte>(i));
}

nb::object helper(const char* name) { return nb::module_::import_("graphsink._host_op").attr(name); }

// Runs a call of Python's in a thread of the library, which holds the GIL. An exception of Python's is kept with the
// function and becomes a C++ one with its text.
template <class Call>
void guarded(HostSlot& slot, const std::string& name, const Call& call) {
  std::string text;
  try {
    return call();
  } catch (nb::python_error& error) {
    text = nb::cast<std::string>(helper("describe")(error.value()));
    if (slot.function != nullptr) {
      slot.function->add_failure(text, nb::borrow(error.value()));
      helper("note_failure")(nb::find(*slot.function));
    }
  } catch (const nb::cast_error&) {
    text = "a result of " + name + " cannot be used";
  }
  throw std::runtime_error(text);
}

// The function, with a reference of its own to what it belongs to. Needs the GIL.
nb::object owner_of(const HostSlot& slot, const std::string& name) {
  if (slot.function != nullptr) return nb::find(*slot.function);
  refuse(name, "its Python function is gone, because the Graph and the Programs that it belongs to are",
         "keep the Program while its steps run");
}

void run(const std::shared_ptr<HostSlot>& slot, const std::string& name, const CpuArgs& a) {
  if (!is_running()) refuse(name, "the interpreter of Python has ended", "wait for the program before: Program.sync()");
  const InHostOp here;
  const WithGil gil;
  const nb::object kept = owner_of(*slot, name);
  const nb::object function = slot->function->function();
  guarded(*slot, name, [&] {
    const nb::tuple operands = operands_of(a);
    store_results(name, ending_here([&] { return function(*operands); }), a);
  });
}

// The types of the outputs as the function of types gives them: the dtype and the sizes of each.
std::vector<TensorType> types_from(nb::handle out, nb::handle inputs, const Where& where) {
  std::vector<TensorType> types;
  for (nb::handle each : helper("output_types")(out, inputs)) {
    const auto dims = nb::cast<Dims>(each[1]);
    std::vector<std::int64_t> sizes;
    for (const Dim& dim : dims.list) sizes.push_back(dim.size);
    Shape shape(std::span<const std::int64_t>(sizes), where);
    for (std::size_t d = 0; d < dims.list.size(); ++d)
      if (dims.list[d].is_open) shape.mark_open(static_cast<int>(d));
    types.push_back({nb::cast<DType>(each[0]), shape});
  }
  return types;
}

void infer(const std::shared_ptr<HostSlot>& slot, const std::string& name, InferArgs& a) {
  const WithGil gil;
  const nb::object kept = owner_of(*slot, name);
  const nb::object out = slot->function->out();
  nb::list inputs;
  for (int i = 0; i < a.inputs(); ++i)
    inputs.append(nb::make_tuple(dtype_object(a.in(i).dtype), shape_object(a.in(i).shape)));
  for (const TensorType& type : types_from(out, inputs, Where())) a.out(type.dtype, type.shape);
}

nb::list list_of(std::span<const Value> values) {
  nb::list list;
  for (const Value& value : values) list.append(value.valid() ? nb::cast(value) : nb::none());
  return list;
}

// Called while the graph is built, by the thread that builds it, which holds the GIL.
std::vector<Value> gradients(const std::shared_ptr<HostSlot>& slot, const std::string& name, const GradArgs& a) {
  const nb::object kept = owner_of(*slot, name);
  const nb::object grad = slot->function->grad();
  nb::object made = helper("gradients")(grad, list_of(a.inputs), list_of(a.outputs), list_of(a.grads));
  std::vector<Value> gradients;
  for (nb::handle each : made) gradients.push_back(each.is_none() ? Value() : value_of(Operand{each}, a.where));
  return gradients;
}

// The list that owns the functions of the graph of the operands; none for Values of an Eager.
nb::object callables_of(const std::vector<Arg>& inputs) {
  for (const Arg& input : inputs) {
    const auto* value = std::get_if<Value>(&input.content());
    if (value == nullptr || value->eager() != nullptr) continue;
    const auto key = reinterpret_cast<std::uintptr_t>(value->graph().get());
    nb::object graph = nb::module_::import_("graphsink._context").attr("graphs").attr("get")(key);
    if (!graph.is_none()) return nb::inst_ptr<GraphHandle>(graph)->callables;
  }
  return {};
}

nb::list host_op(const std::string& function_name, nb::object function, nb::object out, nb::object grad, bool effect,
                 const std::vector<Operand>& given) {
  const Where where = here();
  const std::vector<Arg> inputs = operands(given, where);
  const std::string name = "host_op(" + function_name + ")";
  auto* made = new HostFunction(name, std::move(function), std::move(out), std::move(grad));
  nb::object owner = nb::cast(made, nb::rv_policy::take_ownership);
  const std::shared_ptr<HostSlot> slot = made->slot();
  nb::object callables = callables_of(inputs);
  // An Eager may run the op when this call has returned, and has no list.
  std::shared_ptr<nb::object> kept;
  if (callables.is_valid()) {
    callables.attr("append")(owner);
  } else {
    kept = keep(owner);
  }
  ExternalOp op{.name = name, .traits = {.host_effect = effect}};
  op.call_cost = "25 to 30 us for Python's lock, and about 1 ms where another thread of Python computes";
  op.infer = [slot, name](InferArgs& a) { infer(slot, name, a); };
  op.cpu = [slot, name, kept](const CpuArgs& a) { run(slot, name, a); };
  if (!made->grad().is_none()) {
    op.grad = [slot, name](const GradArgs& a) { return gradients(slot, name, a); };
  } else {
    op.grad = [name](const GradArgs& a) -> std::vector<Value> {
      throw Error(name, a.where, "has no gradient, and grad() must pass through it",
                  "give host_op() a grad=, or keep it out of the path from the loss to the parameters");
    };
  }
  std::vector<Value> outputs;
  try {
    WithoutGil others_run;  // an op of an Eager runs now
    outputs = external_op(std::move(op), inputs, Placement{}, where);
  } catch (const Error& error) {
    set_error(error);  // while the function is there, which has its cause
    throw nb::python_error();
  }
  return list_of(outputs);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<HostFunction>(self)->visit(visit, arg) : 0;
}
int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<HostFunction>(self)->clear();
  return 0;
}
PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

HostFunction::HostFunction(std::string name, nb::object function, nb::object out, nb::object grad)
    : name_(std::move(name)), function_(std::move(function)), out_(std::move(out)), grad_(std::move(grad)) {}

void HostFunction::add_failure(const std::string& text, nb::object exception) {
  constexpr std::size_t kMost = 8;  // programs that have not reported theirs
  if (failures_.size() == kMost) failures_.erase(failures_.begin());
  failures_.push_back({text, std::move(exception)});
}

nb::object HostFunction::take_failure(const std::string& problem) {
  constexpr std::size_t kCompared = 300;  // an Error holds the beginning of a long text
  for (std::size_t i = failures_.size(); i-- > 0;) {
    if (problem.find(failures_[i].text.substr(0, kCompared)) == std::string::npos) continue;
    nb::object exception = std::move(failures_[i].exception);
    failures_.erase(failures_.begin() + static_cast<std::ptrdiff_t>(i));
    return exception;
  }
  return nb::none();
}

int HostFunction::visit(visitproc visit, void* arg) const {
  Py_VISIT(function_.ptr());
  Py_VISIT(out_.ptr());
  Py_VISIT(grad_.ptr());
  for (const Failure& failure : failures_) Py_VISIT(failure.exception.ptr());
  return 0;
}

void HostFunction::clear() {
  slot_->function = nullptr;
  // Dropping these may run Python code, which must not find them here.
  const std::vector<Failure> failures = std::exchange(failures_, {});
  const nb::object function = std::move(function_), out = std::move(out_), grad = std::move(grad_);
}

bool is_in_host_op() noexcept { return calls_here > 0; }

void bind_host_ops(nb::module_& m) {
  m.def("is_in_host_op", is_in_host_op, "Whether this thread runs the function of a host op.");
  m.def(
      "has_host_ops", [](const GraphHandle& graph) { return nb::len(graph.callables) > 0; }, nb::arg("graph"),
      "Whether functions of Python are ops of the graph.");
  m.def(
      "refuse_in_host_op",
      [](const std::string& function) {
        throw Error(
            function, here(),
            "was called by the body of an op, while another call of it with the same types runs, which may wait "
            "for that op",
            "call it before or after the step that the body is part of, or give the body a program of its own: "
            "gs.program() of the function makes one");
      },
      nb::arg("function"), nb::sig("def refuse_in_host_op(function: str) -> typing.Never"),
      "Raises Error for a call in the function of a host op that would wait for a lock.");
  nb::class_<HostFunction>(m, "HostFunction", "The Python function of a host op of a graph.", nb::type_slots(slots),
                           nb::is_weak_referenceable())
      .def_prop_ro("name", &HostFunction::name)
      .def("take_failure", &HostFunction::take_failure, nb::arg("problem"),
           nb::sig("def take_failure(self, problem: str) -> BaseException | None"));
  m.def("host_op_values", host_op,
        nb::sig("def host_op_values(name: str, function: collections.abc.Callable[..., typing.Any], out: typing.Any, "
                "grad: collections.abc.Callable[..., typing.Any] | None, effect: bool, operands: list[typing.Any], /) "
                "-> list[Value]"),
        nb::arg("name"), nb::arg("function"), nb::arg("out").none(), nb::arg("grad").none(), nb::arg("effect"),
        nb::arg("operands"));
}

}  // namespace graphsink::python
