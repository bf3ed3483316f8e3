// Checkpoints of all ranks.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "ranks/rank_group.h"

namespace graphsink::testing {

// The checkpoints of all ranks, on each of them: by way of files, as a training would.
inline std::vector<Checkpoint> of_all(const Checkpoint& mine, const Comm& comm) {
  const std::string name = "graphsink-reshard-" + std::to_string(getpid());
  const std::filesystem::path temporary = std::filesystem::temp_directory_path();
  const std::filesystem::path folder = temporary / comm.group()->all_texts(name, {"test", Where()})[0];
  std::filesystem::create_directory(folder);
  write_checkpoint(folder / std::to_string(comm.rank()), mine);
  comm.barrier();
  std::vector<Checkpoint> all;
  for (int rank = 0; rank < comm.size(); ++rank) all.push_back(read_checkpoint(folder / std::to_string(rank)));
  comm.barrier();
  if (comm.rank() == 0) std::filesystem::remove_all(folder);
  return all;
}

inline void expect_equal(const Checkpoint& seen, const Checkpoint& expected) {
  EXPECT_EQ(seen.metadata, expected.metadata);
  std::vector<std::string> names, wanted;
  for (const auto& [name, tensor] : seen.tensors) names.push_back(name);
  for (const auto& [name, tensor] : expected.tensors) wanted.push_back(name);
  ASSERT_EQ(names, wanted);
  for (const auto& [name, tensor] : expected.tensors) {
    const Tensor& other = seen.tensors.at(name);
    ASSERT_EQ(other.type(), tensor.type()) << name;
    EXPECT_EQ(std::memcmp(other.data(), tensor.data(), tensor.bytes()), 0) << name;
  }
}

}  // namespace graphsink::testing
