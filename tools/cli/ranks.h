// The place of this process among those that a launcher (mpirun, srun) started together, for `--shard auto`.
#pragma once
#include <cstddef>
#include <utility>

namespace gdn::cli {

// Rank and number of ranks: from MPI in builds with GDN_MPI, else from what OpenMPI, MPICH and Slurm put into the environment.
// MPI is asked and left again at once: ranks share nothing but folders, so that one that dies takes no other with it.
// Throws Usage where no launcher can be seen.
std::pair<std::size_t, std::size_t> rank_among_ranks();

}  // namespace gdn::cli
