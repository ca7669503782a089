// The recurrence for processors with AVX2; see recurrent_body.h.
#if defined(__AVX2__) && defined(GDN_HAVE_AVX2)
#define GDN_ISA avx2
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/recurrent_body.h"

namespace gdn::cpu::avx2 {
const RecurrentFunctions kRecurrentFunctions{recurrent_rows, strip_floats};
}
#endif
