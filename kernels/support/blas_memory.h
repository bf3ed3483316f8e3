// The memory that OpenBLAS keeps for the threads that multiply.
#pragma once

namespace graphsink {

// Where the process has a limit on its memory (ulimit -v, ulimit -d), has OpenBLAS take what `threads` threads need
// that multiply at the same time: it keeps that for the life of the process. If it had to take it later and could not,
// it would try again forever. Throws Error if the limit leaves too little. At most 64 threads are provided for, as many
// as OpenBLAS has room for beside its own.
void take_blas_memory(int threads);

}  // namespace graphsink
