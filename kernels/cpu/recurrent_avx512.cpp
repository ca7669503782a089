// The recurrence for processors with AVX-512; see recurrent_body.h.
#if defined(__AVX512F__) && defined(GDN_HAVE_AVX512)
#define GDN_ISA avx512
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/recurrent_body.h"

namespace gdn::cpu::avx512 {
const RecurrentFunctions kRecurrentFunctions{recurrent_rows, strip_floats};
}
#endif
