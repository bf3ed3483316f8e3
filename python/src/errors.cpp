// graphsink::Error becomes graphsink.Error (graphsink/_error.py), and std::bad_alloc MemoryError.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"

namespace graphsink::python {

namespace {

// Types of C++ whose members are keywords in Python. Those that the package has stay in front of a keyword.
constexpr std::string_view kOptions[] = {"AdamwOptions",
                                         "AllReduceOptions",
                                         "AttentionOptions",
                                         "AverageOptions",
                                         "CheckpointOptions",
                                         "CompileOptions",
                                         "Conv2dOptions",
                                         "Pool2dOptions",
                                         "CrossEntropyOptions",
                                         "CumsumOptions",
                                         "GradientOptions",
                                         "GraphFileOptions",
                                         "IdxSourceOptions",
                                         "ImageOptions",
                                         "Limits",
                                         "LoaderOptions",
                                         "LossScale",
                                         "MatmulOptions",
                                         "NcclOptions",
                                         "NpzSourceOptions",
                                         "OrderOptions",
                                         "Patience",
                                         "RandomPartOptions",
                                         "ReadGraphOptions",
                                         "RecordOptions",
                                         "ReduceOptions",
                                         "ReduceScatterOptions",
                                         "RestoreOptions",
                                         "RunOptions",
                                         "SaveOptions",
                                         "ScanOptions",
                                         "SgdOptions",
                                         "SinkOptions",
                                         "SinkRunOptions",
                                         "SortOptions",
                                         "StreamLoaderOptions",
                                         "TokenSourceOptions",
                                         "TopPOptions",
                                         "TrainOptions",
                                         "Tuning",
                                         "VarOptions",
                                         "WhileOptions",
                                         "WorldOptions",
                                         "WriteGraphOptions",
                                         "WriteOptions"};

// Remedies in C++, and what they are in Python, where ops are functions of Python or come from a module in C++.
constexpr std::pair<std::string_view, std::string_view> kPhrases[] = {
    {"give its OpDef a CUDA body", "write it with ops of graphsink, or as an op in C++ that has a CUDA body"},
    {"give its OpDef a CPU body", "write it with ops of graphsink, or as an op in C++ that has a CPU body"},
    {"give its OpDef a .grad", "give the op a gradient in C++"},
    {"its OpDef declares it as not capturable", "it is declared as not capturable"},
    {"list its OpDef in GraphFileOptions::ops; what external_op() made has none: make it an OpDef",
     "give the FileOps of its module in C++ as ops; what host_op() made has none: write it with ops of graphsink"},
    {"list its OpDef in GraphFileOptions::ops, under this name", "give the FileOps of its module in C++ as ops"},
    {"make it a constant of the graph: g.constant(Tensor::scalar(...))",
     "make it a constant of the graph: g.constant(number, gs.i64)"},
    {"same_program = false", "same_program=False"},
    {"declare the op with .traits = {.repeatable = true}", "write the op in C++ and declare it as repeatable"},
    {"build it with the preset cuda, which needs CUDA Toolkit 13",
     "install the package where CUDA Toolkit 13 is, with "
     "pip install . --config-settings=cmake.define.GRAPHSINK_FLAVOUR=cuda"},
};

// Reports of failed captures say this before the text of the user's exception, which ends with its line or before a
// remedy.
constexpr std::string_view kThrew = "the function threw: ";

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::size_t end_of_name(std::string_view text, std::size_t begin) {
  while (begin < text.size() && is_of_name(text[begin])) ++begin;
  return begin;
}

// The module that has the name: graphsink.ranks, for a Comm, where the program uses it.
nb::object module_with(const std::string& name) {
  const nb::object package = nb::module_::import_("graphsink");
  const nb::dict loaded = nb::module_::import_("sys").attr("modules");
  if (nb::hasattr(package, name.c_str()) || !loaded.contains("graphsink.ranks")) return package;
  const nb::object ranks = loaded["graphsink.ranks"];
  return nb::hasattr(ranks, name.c_str()) ? ranks : package;
}

// Returns the name in Python of "scope::member"; "" if it is no name of the library.
std::string python_name(const std::string& scope, const std::string& member) {
  const nb::object package = module_with(scope);
  const bool has_scope = nb::hasattr(package, scope.c_str());
  if (std::find(std::begin(kOptions), std::end(kOptions), scope) != std::end(kOptions))
    return has_scope ? scope + "." + member : member;
  const nb::object owner = scope == "gs" ? package : has_scope ? nb::object(package.attr(scope.c_str())) : nb::none();
  if (owner.is_none()) return "";
  if (nb::hasattr(owner, member.c_str())) return scope + "." + member;
  return nb::hasattr(package, member.c_str()) ? member : "";  // Eager::read() is gs.read()
}

}  // namespace

std::string python_phrases(std::string_view text) {
  std::string made(text);
  for (const auto& [in_cpp, in_python] : kPhrases)
    for (std::size_t at = made.find(in_cpp); at != std::string::npos; at = made.find(in_cpp, at + in_python.size()))
      made.replace(at, in_cpp.size(), in_python);
  return made;
}

std::string python_names(std::string_view said) {
  const std::string in_python = python_phrases(said);
  const std::string_view text = in_python;
  std::string made;
  bool is_quoted = false;  // between double quotes stands what users have named
  for (std::size_t at = 0; at < text.size();) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const bool may_begin = !is_quoted && (before == ' ' || before == '(' || before == '\n');
    if (may_begin && text.substr(at).starts_with(kThrew)) {
      const std::size_t end = std::min({text.find('\n', at), text.find("; remedy: ", at), text.size()});
      made.append(text.substr(at, end - at));
      at = end;
      continue;
    }
    const std::size_t colons = end_of_name(text, at);
    const std::size_t end = end_of_name(text, std::min(colons + 2, text.size()));
    if (may_begin && colons > at && text.substr(colons).starts_with("::") && !text.substr(end).starts_with("::")) {
      const std::string name = python_name(std::string(text.substr(at, colons - at)),
                                           std::string(text.substr(colons + 2, end - colons - 2)));
      made.append(name.empty() ? text.substr(at, end - at) : std::string_view(name));
      at = end;
      continue;
    }
    if (text[at] == '"') is_quoted = !is_quoted;
    made += text[at++];
  }
  return made;
}

namespace {

// Makes the exception of Python, which may run handlers of signals, whose exceptions it throws: KeyboardInterrupt.
// `cause` is taken once, by the first call.
nb::object exception_of(const Error& error, nb::object& cause) {
  if (!cause.is_valid()) {
    cause = nb::none();
    if (error.code() == ErrorCode::step_failed)
      cause = nb::module_::import_("graphsink._host_op").attr("cause_of")(error.op(), error.problem());
  }
  // With a cause these are texts of the user's exception.
  const auto text = [&](std::string_view of) { return cause.is_none() ? python_names(of) : std::string(of); };
  nb::object made = nb::module_::import_("graphsink._error")
                        .attr("Error")(python_names(error.op()), error.where().file_name(), error.where().line(),
                                       std::string(error.where().scope()), text(error.problem()), text(error.remedy()),
                                       error.code(), text(error.what()));
  if (!cause.is_none()) PyException_SetCause(made.ptr(), nb::object(cause).release().ptr());
  return made;
}

}  // namespace

void set_error(const Error& error) {
  // A signal that came while the library waited, such as that of Ctrl-C, is handled before code of Python runs, which
  // would break off at any place.
  std::optional<nb::python_error> interrupt;
  if (PyErr_CheckSignals() != 0) interrupt.emplace();
  nb::object cause, made;
  constexpr int kTries = 3;  // another signal may come in any of them
  for (int i = 0; i < kTries && !made.is_valid(); ++i) {
    try {
      made = exception_of(error, cause);
    } catch (const nb::python_error& raised) {
      interrupt.emplace(raised);
    }
  }
  if (!interrupt) return PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  // The call ends by the interrupt. Its context is the Error, which is reported once, before what it was until then.
  if (made.is_valid()) {
    PyException_SetContext(made.ptr(), PyException_GetContext(interrupt->value().ptr()));
    PyException_SetContext(interrupt->value().ptr(), made.release().ptr());
  }
  interrupt->restore();
}

void bind_errors(nb::module_& m) {
  nb::enum_<ErrorCode>(m, "ErrorCode",
                       "Kind of failure that an Error reports, for programs that go on in different ways.")
      .value("misuse", ErrorCode::misuse)
      .value("unavailable", ErrorCode::unavailable)
      .value("out_of_memory", ErrorCode::out_of_memory)
      .value("device_lost", ErrorCode::device_lost)
      .value("step_failed", ErrorCode::step_failed)
      .value("io", ErrorCode::io)
      .value("stopped", ErrorCode::stopped);
  m.def(
      "refuse",
      [](const std::string& op, const std::string& problem, const std::string& remedy) {
        throw Error(op, here(), problem, remedy);
      },
      nb::arg("op"), nb::arg("problem"), nb::arg("remedy"),
      nb::sig("def refuse(op: str, problem: str, remedy: str) -> typing.Never"), "Raises Error.");
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      is_of_the_end(error) ? set_exit() : set_error(error);
    }
  });
}

}  // namespace graphsink::python
