// Program files: a graph with its Variables in one file, built in one place and run in another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/file_op.h"
#include "graphsink/graph.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Options of write_graph() and of read_graph().
struct GraphFileOptions {
  // Your own ops that the graph has, beside the built-in ones. Borrowed for the call; the OpDefs must outlive the graph
  // that is read. A graph with ops of external_op(), which have no OpDef to name here, is refused.
  std::span<const FileOp> ops = {};
};
// Options of write_graph().
struct WriteGraphOptions : GraphFileOptions {
  // The step that training goes on with (Program::steps()), in the metadata as snapshot() writes it.
  std::int64_t step = 0;
  // Further texts that belong to the graph, such as the name of a model, in UTF-8.
  std::map<std::string, std::string, std::less<>> metadata{};
};
// Options of read_graph().
struct ReadGraphOptions : GraphFileOptions {};

// A graph that was read from a file.
struct LoadedGraph {
  Graph graph;                                       // may be compiled, or built further
  std::map<std::string, Value, std::less<>> inputs;  // inputs by name, for Program::write()
  std::map<std::string, Value, std::less<>> feeds;   // feeds by name, likewise
  // Records by name. A record's Value is one value of it, and may be used like any other, for example by grad().
  std::map<std::string, Value, std::less<>> records;
  std::map<std::string, Value, std::less<>> outputs;  // outputs by name, for Program::output()
  std::vector<Variable> variables;                    // all that the graph uses, in the order in which it first did
  std::int64_t step = 0;                              // WriteGraphOptions::step
  std::map<std::string, std::string, std::less<>> metadata{};  // WriteGraphOptions::metadata
};

// Writes the graph and the values that its Variables have now, so that read_graph() makes a graph of them whose
// programs compute the same bits in every mode: nodes keep their numbers, from which random ops draw. Waits for the
// programs that use the Variables, and reads one after the other, as Variable::read() does: no other thread may run
// steps that assign them meanwhile, or the file has values of different steps.
//
// The file is a safetensors file, and is replaced as write_checkpoint() replaces one. Its tensors are the Variables, by
// their names, and the constants, as "graphsink.constant.0" and so on. The second Variable named "w" is the tensor
// "variable w 2", the third "variable w 3"; a Variable whose name begins with "graphsink.constant." or is
// "__metadata__" is called "variable", its name and a number, too. Read from the file, each has its own name again. The
// graph itself is JSON in its metadata, "graphsink.graph", with the version of its form. Scopes and source lines are
// kept; in the paths of source files, bytes that are not UTF-8 become U+FFFD. Not in the file: options of compile(),
// such as the seed, and which device runs it.
//
// Throws Error as write_checkpoint() does; for a graph with an op that is neither built-in nor in `ops`; where a body
// of a loop or branch is still under construction, or was left by an exception; and for a graph whose JSON and names
// have more than 100 MB, which no safetensors file can hold: about half a million nodes.
void write_graph(const std::filesystem::path& path, const Graph& graph, const WriteGraphOptions& options = {},
                 Where where = Where::current());

// Reads what write_graph() has written. Its Variables are new ones, with the values in the file. The graph may be
// compiled, or built further first, for example by grad(). Files of older versions of this library are read, too.
//
// Files are untrusted. Throws Error with the path, the field and the reason for a file that read_checkpoint() refuses;
// one without a graph, or with a graph of a newer version; an op that is not known in that version; and everything that
// could not have been built: an operand that is no earlier value, attributes or types that an op refuses, results that
// differ from what the op makes of its operands. Takes memory in proportion to the file, for the graph at most about 30
// times the bytes of its JSON, and 60 times those of a node with tens of thousands of operands. The texts of source
// files and scopes are kept until the process ends.
LoadedGraph read_graph(const std::filesystem::path& path, const ReadGraphOptions& options = {},
                       Where where = Where::current());

}  // namespace graphsink
