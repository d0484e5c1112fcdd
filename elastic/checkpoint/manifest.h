#pragma once
// manifest.json of a checkpoint (CHECKPOINT.md).
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tensor/digest.h"

namespace elinvar {

// A file of a checkpoint, as listed in its manifest.
struct CheckpointPart {
  std::string file;
  int64_t bytes = 0;
  Digest digest;        // the file's digest
  bool sliced = false;  // it holds slices of tensors; not read back from a manifest
};

struct Manifest {
  int format = 1;  // 2 if a part holds slices of tensors
  Digest state;    // digest of the whole state
  std::vector<CheckpointPart> parts;
};

// Creates the file in `directory`; its name is durable on return.
void write_manifest(const std::filesystem::path& directory, int64_t step, std::span<const CheckpointPart> parts,
                    const Digest& state);

// Reads the manifest of the checkpoint of `step`. Throws Failure or nlohmann::json::exception.
Manifest read_manifest(const std::filesystem::path& directory, int64_t step);

}  // namespace elinvar
