// Model: a graph together with what to feed it and what it changes. Used by samples, graphsink-bench and tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"

namespace graphsink::models {

// A feed of the graph, and its data: slices for the steps [first, first + count), along a new first dimension. Data
// depend on the step's number alone, so every mode and every way to group steps sees the same.
struct Feed {
  Value value;
  std::function<Tensor(std::int64_t first, std::int64_t count)> slices;
};

// Every model records one scalar per step as "loss"; those that do not train record the sum of their outputs.
struct Model {
  std::string name;
  Graph graph;
  std::vector<Feed> feeds;
  std::vector<Variable> variables;  // all that the graph reads or changes
  // Its feeds are inputs of the graph that have another size in each step, so that a run is of one step; `count` is 1.
  bool has_one_step_a_run = false;
  Tuning tuning{};  // models that measure what issuing many ops costs turn Tuning::fuse off
};

// How processes share a training: what updates the parameters, given the gradients of this process, and what becomes of
// the loss that is shown. Empty: one process trains.
struct Sharing {
  std::function<Optimizer(const AdamwOptions&, const std::vector<ParameterGroup>&, const std::vector<Value>&)> apply;
  std::function<Value(const Value&)> loss;
};

// Gives `program`, compiled from the model's graph, the data for the coming steps.
void feed(Program& program, const Model& model, std::int64_t first, std::int64_t count);

// The same, and runs these steps: in one run, or, where the model has one step a run, in as many as there are steps.
void run(Program& program, const Model& model, Mode mode, std::int64_t first, std::int64_t count);

// Uniform numbers without state: position i of the sequence that `seed` names (SplitMix64, Steele et al. 2014, "Fast
// splittable pseudorandom number generators").
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i);

}  // namespace graphsink::models
