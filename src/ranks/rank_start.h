// How this process was started together with others: the environment variables of those who start ranks.
#pragma once

#include <functional>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

struct RankStart {
  enum class Kind { alone, mpi, variables };
  Kind kind = Kind::alone;
  int size = 1;  // for Kind::mpi: as far as a variable says it, else 1
  // For Kind::variables.
  int rank = 0;
  int local_rank = -1;    // the rank's number on its machine; -1: not said
  std::string host = {};  // the machine of rank 0
  int port = 0;           // on which rank 0 waits for the others
  std::string job = {};   // names the job among others, for people; "": no variable does
};

// Like std::getenv(): null where there is no such variable.
using Environment = std::function<const char*(const char*)>;

// `mpi_ranks`: how many MPI knows of; 0: it is not initialised. Where it knows of one alone, whoever started the
// processes did not use it, and the variables count. Throws Error for variables that contradict each other, and where
// some of them are missing.
RankStart rank_start_of(const Environment& get, int mpi_ranks, const Where& where);

}  // namespace graphsink
