// Ranks: processes that run one program together, each on data of its own, and exchange values by collectives, which
// are ops of the graph. They are a library of their own, graphsink::ranks, which needs MPI, or ZeroMQ, or both.
//
//   gs::Comm comm = gs::world();                            // started by mpirun -n 4 ./train, or torchrun, or srun
//   gs::broadcast_variables({{w, b}}, comm);                // all ranks begin with the values of rank 0
//   std::vector<gs::Value> gradients = gs::grad(loss, {w, b});
//   gs::apply(gs::SgdOptions{}, {w, b}, gs::average(gradients, comm));  // data-parallel: all ranks make one update
//   g.record("loss", gs::all_reduce(loss, comm, {.reduction = gs::Reduction::mean}));
//
// Every rank must build the same collectives, in the same order, and run the same steps. When each has bound a program,
// or could not, all ranks compare the collectives of the plan, unless they have compared such a plan before, and each
// throws Error if they differ, or if a rank could not. Where they average gradients, they also compare the program, and
// the values with which each Graph begins, so that all ranks bind programs of a new Graph: see
// AverageOptions::same_program. A step that fails on one rank commits nothing on any: before the commit all ranks learn
// of it, and each reports an Error that names the rank. Steps behind a failed one commit nothing until it was reported,
// so every rank has to report it, by sync(), before it runs the next steps. So it is with a step in which a condition
// of stop_when() holds on some ranks and not on others: it fails on all. With Guards::replay_every all ranks must run
// in one mode, and not in Mode::automatic.
//
// Groups. A plan may have collectives of several groups, which Comm::split() makes. Each group compares its own part of
// the plan. The ranks that agree on a step are those of the smallest group of which all groups of the plan are parts,
// or of the only group of the plan. All of these ranks must run the step, and their plans must have that group in
// common: where the groups of some have one rank alone, let all of them record, for instance, the mean of the loss over
// it. The collectives of all groups run in the order in which they were built; if that order differs between ranks,
// they may wait for each other until their patience ends.
//
// A rank that does not come is waited for as long as WorldOptions::patience_s says. Then the step fails with an Error
// that names the collective and the ranks that were not heard of, with ErrorCode::device_lost, and so does every later
// step with a collective, because nobody knows what the others have received: end the process, and start all ranks
// again from a checkpoint. With MPI, programs with collectives must not be destroyed before, and the process should end
// without MPI_Finalize(), which would wait for the rank, too: a rank that comes late still writes to the memory of the
// collective. Ranks that were not started by MPI end as any process does.
//
// With NCCL the patience ends waits in sync(), records(), output() and other calls that wait for steps, in
// Variable::read() and write(), and loops around Program::poll(), which throws then. It does not end those in which no
// call of the program waits: cudaStreamSynchronize() of the caller's streams, steps of other programs that read a
// Variable behind it, collectives of an Eager. Nor does it hold while NCCL makes communicators. A step that was given
// up commits nothing on this rank; others may have committed it.
//
// Bits. A sum is added up in the order of the ranks, in f32 for 16-bit floats, so every rank has the same bits, however
// the data are moved. Another number of ranks adds up in another order.
//
// On GPUs the data of collectives crosses the host with world() and mpi_world(); with nccl_world() it does not.
//
// Programs, Eagers, barrier(), split() and broadcast_variables() may share a Comm: its collectives have the order of
// the calls on the rank, which must be the same on all ranks. On one thread, each call waits until the steps of another
// program that uses the Comm have ended. On another thread it throws Error, until the program that ran last was waited
// for: by sync(), output() and records(), a poll() that returned true, or its destructor. That does not depend on
// whether its steps have ended. A program must not be used by another thread either before it was waited for. Threads
// that do not wait for each other need a Comm each: comm.split(0) makes one. Steps in a CUDA graph of the caller's
// (Program::enqueue()) take no turn: wait for the graph before something else uses the Comm. sync() and what else waits
// for steps with collectives of NCCL also wait for an exchange on the host that another program has begun in the Comm,
// at most until its patience ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/checkpoint.h"
#include "graphsink/error.h"
#include "graphsink/graph.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class RankGroup;

// A group of ranks, in which this process is one. Cheap to copy: copies are the same group.
class Comm {
 public:
  // For the library.
  explicit Comm(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}

  int rank() const noexcept;  // this process, counted from 0
  int size() const noexcept;  // number of ranks, at least 1
  // The number of the CUDA device for which nccl_world() was called on this rank; -1 for other groups.
  int device() const noexcept;
  // Returns when all ranks have called it. Throws Error if one does not come.
  void barrier(Where where = Where::current()) const;
  // Divides the ranks into groups: those that give the same colour, a number of at least 0, become one, ordered by
  // `key` and, where that is equal, by their ranks in this Comm. All ranks call it, as often and in the same order;
  // each gets the group that it is in, of one rank at least. The group has the patience of this Comm. Throws Error for
  // a negative colour, and if a rank does not come. For a grid of 2 x 2 ranks:
  //
  //   Comm row = world.split(world.rank() / 2), column = world.split(world.rank() % 2);
  Comm split(int color, int key = 0, Where where = Where::current()) const;

  const std::shared_ptr<RankGroup>& group() const noexcept { return group_; }  // for the library

 private:
  std::shared_ptr<RankGroup> group_;
};

// Options of world() and mpi_world().
struct WorldOptions {
  double patience_s = 600;  // how many seconds a rank waits for the others before it throws Error; above 0
};
// All processes that were started together, however that was done:
//   * by mpirun, or in a program that has initialised MPI, which knows of several ranks: as mpi_world();
//   * by torchrun, or anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (LOCAL_RANK is optional);
//   * by srun of Slurm, with MASTER_ADDR and MASTER_PORT set by you;
//   * else it is one rank, as one_rank().
// Without MPI the ranks exchange values over TCP. Rank 0 then listens on the machine MASTER_ADDR at the port
// GRAPHSINK_PORT or, where that is not set, at MASTER_PORT + 1, because torchrun itself listens at MASTER_PORT; every
// rank listens at a port that the system chooses. Nothing is encrypted: use a network that you trust. Every process
// calls it as often, each time with an equal patience, which holds for this call, too: ranks that do not come are
// named, with ErrorCode::device_lost. Throws Error for variables that contradict each other, such as a RANK that two
// processes have, in a child of fork() whose parent has called it, and with ErrorCode::unavailable where this build
// lacks MPI or ZeroMQ, the port is not free, or MPI knows of one rank alone where its own variables name more.
Comm world(const WorldOptions& options = {}, Where where = Where::current());
// All processes that mpirun, or whatever else starts MPI programs, has started together; one rank if it was not used.
// All of them must call it, each time with an equal patience. MPI is initialised if nobody did so, and is then
// finalised when the process ends. Throws Error for an MPI that does not allow calls from several threads
// (MPI_THREAD_MULTIPLE), because the bodies of ops run on threads of the library, and with ErrorCode::device_lost for
// processes that do not call it within the patience. Nothing ends the waits of MPI itself: where it is initialised, for
// processes that were started and do not do so; in MPI_Finalize(); and in Comm::split(), for a rank that ends when all
// have called it. In a build without MPI it throws Error (ErrorCode::unavailable).
Comm mpi_world(const WorldOptions& options = {}, Where where = Where::current());
// Options of nccl_world().
struct NcclOptions {
  double patience_s = 600;  // as WorldOptions::patience_s, for exchanges on the host
  // Number of the CUDA device; -1: the rank's number on its machine (LOCAL_RANK, where it is set), modulo the devices
  // there.
  int device = -1;
};
// The processes of world(), each with a GPU of its own. In programs that are compiled for it, cuda(comm.device()), NCCL
// moves the values of collectives from GPU to GPU, inside of launches; else they cross the host, as do plans that are
// compared. NCCL is opened when the program runs: libnccl.so.2, or what the environment variable GRAPHSINK_NCCL names.
// All processes must call it, and it waits for all of them. One rank needs no NCCL. Throws Error
// (ErrorCode::unavailable) on all ranks if one of them has no NCCL, none that is new enough, or no such device, and in
// a build without CUDA.
//
// With such a Comm, whether a step is captured must be the same on all ranks: they run in the same modes (automatic is
// sink), meet new shapes of inputs in the same steps, and what fails is reported by sync() and by what waits for steps.
// They run as many steps in each run(). The first run() of a program in a mode waits for the other ranks, as does one
// that captures. Where another one is about to run in another mode for the first time, or to capture a launch of
// another number of steps, all throw Error, and issue nothing of it. Where only one of them has anything new to do, it
// waits until its patience ends; the Error says then in which mode, and with which shapes, each rank runs. The order in
// which a sum is added up is that of NCCL.
Comm nccl_world(const NcclOptions& options = {}, Where where = Where::current());
// A group of this process alone. Collectives add no nodes to the graph then, so that its plan is that of a
// program without ranks.
Comm one_rank();

// --- collectives
//
// Operands and results have one type on every rank; in an Eager, the ranks compare them in every call. Each op has a
// gradient, for which the loss is the sum of the losses of all ranks: so the gradient of a sum is the sum of the
// gradients of all ranks. grad() refuses a loop or branch that would have to repeat a collective. Collectives run one
// after the other, in the order in which they were built, even if nothing uses their results. In a loop or branch all
// ranks must take the same way: make its condition from values that are equal on all ranks, such as results of
// all_reduce().

// How the elements of all ranks become one. Means are of floats; sums are not of u8, which would overflow unseen.
enum class Reduction : std::uint8_t { sum, mean, max };
// Options of all_reduce().
struct AllReduceOptions {
  Reduction reduction = Reduction::sum;  // how elements become one
  // All ranks compute one and the same loss from the result, as in tensor parallelism, and the gradient is that of this
  // loss, not of the sum of as many equal losses: of a sum it passes as it is. For sums and means.
  bool same_loss = false;
};
// Combines the elements of all ranks, element by element; every rank gets the result, of the type of `x`. The gradient
// of a maximum goes to those elements that equal it, in equal parts. Say `same_loss` where all ranks compute one and
// the same loss from the result, as in tensor parallelism: the gradient is that of this loss then, not of the sum of as
// many equal losses. Throws Error for booleans, and for a maximum with same_loss.
Value all_reduce(Arg x, const Comm& comm, const AllReduceOptions& options = {});
// Puts the tensors of all ranks behind one another along the first axis, in the order of the ranks: [n, ...] becomes
// [size * n, ...].
Value all_gather(Arg x, const Comm& comm);
// Options of reduce_scatter().
struct ReduceScatterOptions {
  Reduction reduction = Reduction::sum;  // how elements become one; no maximum
};
// Combines like all_reduce(), and gives each rank its part along the first axis: [size * n, ...] becomes [n, ...].
// Throws Error where the axis cannot be divided by the number of ranks, and for a maximum, which has no gradient here.
Value reduce_scatter(Arg x, const Comm& comm, const ReduceScatterOptions& options = {});
// Every rank gets the tensor of rank `root`.
Value broadcast(Arg x, const Comm& comm, int root = 0);
// Gives the n-th part along the first axis to rank n; the result has the parts that this rank got, in the order of the
// ranks. Throws Error where the axis cannot be divided by the number of ranks.
Value all_to_all(Arg x, const Comm& comm);
// Rank r gets the tensor of rank sources[r], or zeros where that is -1. `sources` has an element for each rank, and is
// equal on all ranks; each rank's tensor goes to one rank at most. A ring of three is {2, 0, 1}; {-1, 0, 1} passes on
// what the stages of a pipeline have computed. All ranks build it, also those that neither send nor receive. The
// gradients go the other way. Throws Error for a rank that is not there, and for one that is the source of two.
Value send_receive(Arg x, const Comm& comm, const std::vector<int>& sources);

// --- tensor parallelism
//
// One model is divided among ranks, which compute one loss together, of equal inputs (Shoeybi et al. 2019,
// "Megatron-LM"). A matrix is divided by its columns, so that each rank has some elements of the result, and the next
// one by its rows, so that the ranks' products are added up:
//
//   Value hidden = gelu(matmul(enter_parallel(x, comm), columns_of_w1));
//   Value y = leave_parallel(matmul(hidden, rows_of_w2), comm) + b2;
//
// So are the heads of an attention. The loss is the same on all ranks, and gradients are those of this one loss. This
// is not so for the gradients of other collectives, which are those of the sum of the losses of all ranks: do not take
// their gradients where the loss is the same on all ranks. The gradients of what is behind enter_parallel() and before
// leave_parallel() belong to this rank; all others are equal on all ranks.

// The part of this rank of a parameter that is divided along an axis: a Variable named "<name>.part<r>", which begins
// with the r-th of as many equal parts of `whole` as the Comm has ranks. `whole` is equal on all ranks, which all call
// this. An axis below 0 counts from behind. With one rank it is Variable(name, whole, on). A matrix that holds several,
// such as those of queries, keys and values, has to be [w, 3, w], divided along axis 2, because parts are contiguous.
// The bias of divided columns is divided along axis 0; the one of divided rows is whole, and added behind
// leave_parallel().
//
// Optimizers need nothing else: a norm, of clip_norm or a loss scale, is that of the gradients of all parts, and of
// parameters that are not divided once, for which the ranks make one exchange in each step. When a program is bound,
// the ranks compare the values of what its optimizer updates beside parts: parameters that are not divided, their
// state, and the learning rate. In a checkpoint each rank saves the parts that it has, and reshard() makes them for
// another number of ranks. Throws Error where the axis cannot be divided.
//
//   Variable w1 = divided_variable("w1", Tensor::kaiming({512, 2048}, 1), 1, comm);  // columns: [512, 2048 / size]
Variable divided_variable(const std::string& name, const Tensor& whole, int axis, const Comm& comm, Placement on = {},
                          Where where = Where::current());
// Returns x, which has equal elements on all ranks. Its gradient is the sum of the gradients of all ranks.
Value enter_parallel(Arg x, const Comm& comm);
// The sum over all ranks, on every rank: all_reduce() with AllReduceOptions::same_loss. Its gradient passes as it is.
Value leave_parallel(Arg x, const Comm& comm);
// cross_entropy() of logits whose classes are divided among the ranks: `logits` [n, c / size] has those of this rank,
// in the order of the ranks, and `targets` [n], i32 or i64, are equal on all ranks, and count all c classes. Takes f32
// and f64. Options and result are those of cross_entropy(), and a target that is no class fails the step, as an index
// that lies outside the axis. The result is the same on all ranks, and the
// gradient that of this one loss.
Value cross_entropy_parallel(Arg logits, Arg targets, const Comm& comm, const CrossEntropyOptions& options = {});

// --- data parallelism

// Options of average() and apply_sharded().
struct AverageOptions {
  // Tensors of one dtype are put together for one exchange, as long as they have no more bytes together; a larger one
  // is exchanged alone. At least 1.
  std::size_t bucket_bytes = std::size_t{4} << 20;
  // The ranks of the Comm train one program. When it is bound, they compare the ops on which these gradients depend,
  // in this step and, through the Variables that it updates, in later ones: attributes, numbers, operands and types;
  // and once the values of the Variables that all ranks update alike, and of those that such updates read. Each throws
  // Error that names the first op, or the Variable, that differs. Inputs, tensors given to constant(), other Variables,
  // and what no gradient depends on may differ. Say false, on all ranks, where more differs on purpose.
  bool same_program = true;
};
// The means of each of these values over all ranks, for gradients: each is what one rank would compute of the mean loss
// of all data, if every rank has as much of it.
std::vector<Value> average(std::span<const Value> values, const Comm& comm, const AverageOptions& options = {},
                           Where where = Where::current());
// apply(options, parameters, average(gradients, comm)) with the state of the optimizer divided among the ranks: each
// has one part of it, updates that part of every parameter, and gets the others from the other ranks (Rajbhandari et
// al. 2020, "ZeRO", stage 1). Without NCCL the parameters have the same bits as with apply(), except that a norm,
// of clip_norm or a loss scale, may differ in the last bits; NCCL may add up in another order here. All options of
// apply() are there; clipping and skipped updates are decided by the norm of the gradients of all ranks. `gradients`
// are those of this rank, not averaged.
//
// Of a parameter of n elements, rank r has the r-th of the parts of ceil(n / size) elements, counted in the flat
// parameter: "<parameter>.shard<r>", in f32 for 16-bit parameters, which begins with the value that the parameter has
// when the function is called. Optimizer::state has the shards of all parameters first, then the state, named after
// them: "<parameter>.shard<r>.adamw.m". The shard is updated, and the parameter is made from the shards of all ranks.
// If you overwrite the parameter afterwards, by broadcast_variables() for instance, also overwrite the shards, or the
// next update discards your write. Each rank has to save Optimizer::variables() in a checkpoint of its own: in train(),
// in the folder of shard_folder(). reshard() makes those for another number of ranks.
//
// `buckets` is as for average(). Graph::updated() gives a parameter's new value. Throws Error where apply() does, and
// in the body of a loop or branch. Do not assign the parameters again behind it: the shards would not learn of that.
Optimizer apply_sharded(const SgdOptions& options, const std::vector<Variable>& parameters,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets = {},
                        Where where = Where::current());
// The same with options for each group.
Optimizer apply_sharded(const SgdOptions& options, const std::vector<ParameterGroup>& groups,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets = {},
                        Where where = Where::current());
// The same with the update of adamw().
Optimizer apply_sharded(const AdamwOptions& options, const std::vector<Variable>& parameters,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets = {},
                        Where where = Where::current());
// The same with the update of adamw() and options for each group.
Optimizer apply_sharded(const AdamwOptions& options, const std::vector<ParameterGroup>& groups,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets = {},
                        Where where = Where::current());
// Returns the checkpoint of this rank, for restore(), made from those of all ranks that saved one step, in the order of
// the ranks: for a training with apply_sharded() that goes on with another number of ranks, or as a single one with
// apply(), or the other way round. `variables` are those of the program that goes on, Program::variables(): their names
// and types say how states are divided now. Metadata are those of the first checkpoint. Tensors that no Variable takes
// stay in the result, where restore() finds them. Nothing is exchanged: each rank reads the files of all. Throws Error
// for checkpoints of different steps, where shards are missing or have other sizes than so many ranks would have
// written, and for a tensor that is no shard, no part of a divided_variable() and not equal in all of them. States of
// apply_sharded() that several groups have divided, as in a grid of ranks, cannot be divided anew.
//
//   std::vector<Checkpoint> all;
//   for (const std::filesystem::path& file : newest_sharded_checkpoint("run1")) all.push_back(read_checkpoint(file));
//   restore(program, reshard(all, program.variables()));
Checkpoint reshard(std::span<const Checkpoint> ranks, std::span<const Variable> variables,
                   Where where = Where::current());
// The folder of this rank for train(): "<folder>/rank<r>-of-<size>", which is made if it is not there. All ranks call
// it, with a folder that all machines share, after compile() and before train(). `comm` has all ranks of the training,
// not a group of them:
//
//   options.save.folder = gs::shard_folder("run1", comm, program.variables());
//
// All ranks then go on from the newest step that all ranks have saved, with as many ranks as now or another number, of
// which reshard() makes the file of this rank; newer files in this rank's folder are removed. A file in `folder`
// itself, of a training that divides nothing, counts as one of a single rank. So the training goes on at whatever
// moment it was killed, if SaveOptions::keep_newest is at least 2 and `in_background` is false: in the background a
// rank may leave out a file that others have. If a rank could not write its files, which train() logs, the others may
// have removed those that all had. After a kill in the first save, which some ranks have finished and others have not,
// the training begins anew, and each rank logs a warning with the file that it removes. Throws Error on all ranks where
// one of them cannot read or write, where they see different files, and where there are other files, but none of a step
// that all have.
std::filesystem::path shard_folder(const std::filesystem::path& folder, const Comm& comm,
                                   std::span<const Variable> variables, Where where = Where::current());
// The files of the newest step that all ranks of a training have saved, in the order of the ranks, as they lie in the
// folder given to shard_folder(); empty if there is no such folder, no file in it, or after a kill in the first save,
// of which some ranks have a file and others an empty folder. Throws Error where there are other files, but none of a
// step that all ranks have.
std::vector<std::filesystem::path> newest_sharded_checkpoint(const std::filesystem::path& folder,
                                                             Where where = Where::current());
// Writes the values that rank `root` has to the Variables of all ranks, before the first step. Throws Error where a
// rank has other types.
void broadcast_variables(std::span<const Variable> variables, const Comm& comm, int root = 0,
                         Where where = Where::current());

}  // namespace graphsink
