// jacobi: the temperatures of a heated plate, by iterations until they hardly change. A step is a loop whose length its
// data decide.
#pragma once

#include "samples/models/model.h"

namespace graphsink::models {

struct JacobiOptions {
  std::int64_t size = 512;               // cells on each side of the plate
  double tolerance = 0.2;                // degrees by which the last iteration may still change a cell
  std::int64_t max_iterations = 100000;  // a step that needs more fails
  // An op with a CPU body only counts the iterations, so that on a GPU the host drives the loop. The bits are the same.
  bool counts_on_host = false;
};

// Solves the equation of heat in balance on a square plate with Jacobi's iteration: each inner cell becomes the mean of
// its four neighbours (Golub & Van Loan 2013, "Matrix computations", 11.2). The upper border has the temperature of a
// heater, which is another one in each step, and the other borders have 0 degrees. The inner cells begin with 0
// degrees. Its Variables are the plate and the heater; it records "iterations", and the mean temperature as "loss".
Model jacobi(const JacobiOptions& options);

}  // namespace graphsink::models
