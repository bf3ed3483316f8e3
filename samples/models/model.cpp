#include "samples/models/model.h"

namespace graphsink::models {

void feed(Program& program, const Model& model, std::int64_t first, std::int64_t count) {
  for (const Feed& feed : model.feeds) program.write(feed.value, feed.slices(first, count));
}

void run(Program& program, const Model& model, Mode mode, std::int64_t first, std::int64_t count) {
  const std::int64_t steps = model.has_one_step_a_run ? 1 : count;
  for (std::int64_t step = first; step < first + count; step += steps) {
    feed(program, model, step, steps);
    program.run(mode, {.steps = steps});
  }
}

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace graphsink::models
