// A program that adds up a number over its ranks, of which there is one.
#include <graphsink/graphsink.h>
#include <graphsink/ranks.h>

#include <iostream>

namespace gs = graphsink;

int main() {
  const gs::Comm comm = gs::one_rank();
  gs::Graph g;
  const gs::Value x = g.input("x", gs::f32, gs::Shape{});
  g.output("sum", gs::all_reduce(x, comm));
  gs::Program program = gs::compile(g);
  program.write(x, gs::Tensor::scalar(3.0f));
  program.run(gs::sink);
  std::cout << "rank " << comm.rank() << " of " << comm.size() << ": " << program.output("sum").at(0) << "\n";
}
