// Reads the part of the DOT language that Plan::explain_dot() writes, and refuses everything else.
#pragma once

#include <cctype>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace graphsink::testing {

struct DotGraph {
  using Attributes = std::map<std::string, std::string>;
  struct Node {
    Attributes attributes;
    std::vector<std::string> clusters;  // the outermost first
  };
  Attributes attributes;  // of the whole graph
  std::map<std::string, Node> nodes;
  std::map<std::pair<std::string, std::string>, Attributes> edges;
};

class DotReader {
 public:
  explicit DotReader(const std::string& text) : text_(text) {}

  DotGraph run() {
    expect("digraph");
    id();
    statements();
    if (!peek().empty()) refuse("text behind the graph");
    return std::move(graph_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error("DOT: " + what + " at " + text_.substr(next_, 40));
  }

  // One character, or two for an arrow; "" at the end. Identifiers and strings are read by id().
  std::string peek() {
    while (next_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[next_]))) ++next_;
    return text_.substr(next_, text_.compare(next_, 2, "->") == 0 ? 2 : 1);
  }

  bool accept(const std::string& token) {
    if (peek() != token) return false;
    next_ += token.size();
    return true;
  }

  void expect(const std::string& token) {
    bool found = token.size() > 2 ? id() == token : accept(token);
    if (!found) refuse("expected " + token);
  }

  // A name, a number or a quoted string, with the escapes of its lines resolved.
  std::string id() {
    if (accept("\"")) return string();
    std::string result;
    auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    while (next_ < text_.size() && is_part(text_[next_])) result += text_[next_++];
    if (result.empty()) refuse("expected a name");
    bool is_name = !std::isdigit(static_cast<unsigned char>(result[0]));
    if (!is_name && result.find_first_not_of("0123456789.") != std::string::npos) refuse("neither name nor number");
    return result;
  }

  std::string string() {
    std::string result;
    for (;;) {
      if (next_ >= text_.size()) refuse("a string without end");
      char c = text_[next_++];
      if (c == '"') return result;
      if (c != '\\') {
        result += c;
        continue;
      }
      char escaped = text_[next_++];
      if (escaped != 'n' && escaped != 'l' && escaped != '"' && escaped != '\\') refuse("unknown escape");
      result += escaped == 'n' || escaped == 'l' ? '\n' : escaped;
    }
  }

  DotGraph::Attributes attributes() {
    DotGraph::Attributes result;
    if (!accept("[")) return result;
    do {
      std::string name = id();
      expect("=");
      result[name] = id();
    } while (accept(","));
    expect("]");
    return result;
  }

  void statements() {
    expect("{");
    while (!accept("}")) statement();
  }

  void statement() {
    std::string name = id();
    if (name == "subgraph") {
      clusters_.push_back(id());
      statements();
      clusters_.pop_back();
      return;
    }
    if (accept("=")) {
      std::string value = id();
      if (clusters_.empty()) graph_.attributes[name] = value;
    } else if (accept("->")) {
      std::string to = id();
      if (!graph_.edges.emplace(std::pair(name, to), attributes()).second) refuse("an edge twice");
    } else if (auto found = attributes(); name != "node") {
      if (!graph_.nodes.emplace(name, DotGraph::Node{found, clusters_}).second) refuse("a node twice");
    }
    expect(";");
  }

  const std::string& text_;
  std::size_t next_ = 0;
  std::vector<std::string> clusters_;
  DotGraph graph_;
};

// Throws for what is not DOT, for a node that is declared twice and for an edge that is there twice.
inline DotGraph read_dot(const std::string& text) { return DotReader(text).run(); }

}  // namespace graphsink::testing
