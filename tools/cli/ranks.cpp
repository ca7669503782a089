// Ranks of a launcher; see ranks.h.
#include "tools/cli/ranks.h"

#ifdef GDN_MPI
#include <mpi.h>
#endif

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tools/cli/command.h"

namespace gdn::cli {
namespace {

constexpr const char* kVariables[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};

std::optional<std::size_t> number(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return {};
  std::size_t x = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), x);
  if (error != std::errc{} || *end) throw Usage(std::string("--shard auto: ") + variable + "=" + text + " is not a number");
  return x;
}

}  // namespace

std::pair<std::size_t, std::size_t> rank_among_ranks() {
  for (const auto& [rank, size] : kVariables) {
    const auto mine = number(rank), all = number(size);
    if (!mine || !all) continue;
    if (*mine >= *all) throw Usage(std::string("--shard auto: ") + rank + " is not below " + size);
#ifdef GDN_MPI
    if (std::strncmp(rank, "SLURM", 5) != 0) {     // srun without an MPI plugin would make of every rank a world of its own
      int place = 0, count = 1;
      if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &place) != MPI_SUCCESS || MPI_Comm_size(MPI_COMM_WORLD, &count) != MPI_SUCCESS)
        throw std::runtime_error("--shard auto: MPI does not start");
      MPI_Finalize();
      return {static_cast<std::size_t>(place), static_cast<std::size_t>(count)};
    }
#endif
    return {*mine, *all};
  }
  throw Usage("--shard auto: neither mpirun nor srun started this process; give --shard I/N");
}

}  // namespace gdn::cli
