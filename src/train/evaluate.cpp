#include <cmath>
#include <string>
#include <vector>

#include "api/program_access.h"
#include "graphsink/train.h"
#include "train/loader_access.h"

namespace graphsink {
namespace {

// A metric, as far as the steps have recorded it.
struct Sum {
  double values = 0, weights = 0;

  double value(Metric::Kind kind) const {
    switch (kind) {
      case Metric::Kind::mean:
        return values / weights;
      case Metric::Kind::perplexity:
        return std::exp(values / weights);
      case Metric::Kind::sum:
        break;
    }
    return values;
  }
};

const std::string& name_of(const Metric& metric) { return metric.name.empty() ? metric.record : metric.name; }

// Values of the records of a launch, each read once however many metrics use it.
class RecordedValues {
 public:
  RecordedValues(Program& program, std::int64_t steps, const Where& where)
      : program_(program), steps_(steps), where_(where) {}

  const std::vector<double>& of(const std::string& record) {
    const auto [at, is_new] = values_.try_emplace(record);
    if (is_new) at->second = program_.records<double>(record, where_);
    if (static_cast<std::int64_t>(at->second.size()) != steps_) {
      throw Error("evaluate", where_,
                  "\"" + record + "\" has recorded " + std::to_string(at->second.size()) + " numbers in " +
                      std::to_string(steps_) + " steps",
                  "record a scalar, with room (RecordOptions::capacity) for at least the steps of a launch");
    }
    return at->second;
  }

 private:
  Program& program_;
  const std::int64_t steps_;
  const Where where_;
  std::map<std::string, std::vector<double>> values_;
};

void add(Sum& sum, const Metric& metric, RecordedValues& values) {
  const std::vector<double>& of_steps = values.of(metric.record);
  const std::vector<double>* weights = metric.weight.empty() ? nullptr : &values.of(metric.weight);
  for (std::size_t i = 0; i < of_steps.size(); ++i) {
    const double weight = weights ? (*weights)[i] : 1;
    if (weight == 0) continue;  // a batch of padding alone, whose mean may be 0/0
    sum.values += weight * of_steps[i];
    sum.weights += weight;
  }
}

}  // namespace

Metrics evaluate(Program& program, Loader& loader, std::span<const Metric> metrics, Mode mode, Where where) {
  const Held of_program = ProgramAccess::hold(program, where), of_loader = LoaderAccess::hold(loader, where);
  if (!loader.feeds(program, where))
    throw Error("evaluate", where, "the loader feeds another program", "pass the loader that was made for this one");
  Metrics result;
  for (const Metric& metric : metrics) {
    if (!result.emplace(name_of(metric), 0).second) {
      throw Error("evaluate", where, "two metrics are named \"" + name_of(metric) + "\"",
                  "set Metric::name of one of them");
    }
    (void)program.records<double>(metric.record, where);  // those of steps before
    if (!metric.weight.empty()) (void)program.records<double>(metric.weight, where);
  }
  std::vector<Sum> sums(metrics.size());
  loader.seek({}, where);
  while (const std::int64_t steps = loader.next(where)) {
    program.run(mode, {.steps = steps}, where);
    RecordedValues values(program, steps, where);
    for (std::size_t i = 0; i < metrics.size(); ++i) add(sums[i], metrics[i], values);
    if (metrics.empty()) program.sync(where);
  }
  for (std::size_t i = 0; i < metrics.size(); ++i) result[name_of(metrics[i])] = sums[i].value(metrics[i].kind);
  return result;
}

}  // namespace graphsink
