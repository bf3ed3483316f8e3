// In eager mode each op runs when it is called. Then the same ops run as a graph.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

int main() try {
  gs::Eager eager;
  gs::Value x = eager.tensor({1, 2}), y = eager.tensor({3, 4});
  gs::Value m = x * y;
  gs::Value n = x - y;
  std::cout << "m = " << m << "\n";  // m is computed already, although the program has not mentioned z yet
  gs::Value z = m + n;
  std::cout << "z = " << z << "\n";

  gs::Graph g;
  gs::Value a = g.input("a", gs::f32, {2}), b = g.input("b", gs::f32, {2});
  g.output("z", a * b + (a - b));
  gs::Program program = gs::compile(g);
  std::cout << program.explain();
  program.write(a, gs::Eager::read(x));
  program.write(b, gs::Eager::read(y));
  program.run(gs::sink);
  std::cout << "z of the graph = " << program.output("z") << "\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
