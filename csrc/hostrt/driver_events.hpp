#pragma once

#include <cuda.h>

namespace pyxfer::hostrt::driver {

CUresult event_create(CUevent* made, unsigned int flags);
CUresult event_destroy(CUevent handle);
CUresult event_record(CUevent handle, CUstream stream);
CUresult event_query(CUevent handle);
CUresult event_synchronize(CUevent handle);
CUresult event_elapsed_time(float* milliseconds, CUevent start, CUevent end);

}  // namespace pyxfer::hostrt::driver
