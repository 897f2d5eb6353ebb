#include "links/kernel_text.hpp"

namespace pyxfer {

char const* const kernel_text = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry copy16(.param .u64 destination, .param .u64 source, .param .u64 count)
{
  .reg .u64 %to, %from, %end, %at, %step, %three, %a, %b;
  .reg .u32 %t, %bd, %bi, %gd;
  .reg .b32 %x<16>;
  .reg .pred %p;
  ld.param.u64 %to, [destination];
  ld.param.u64 %from, [source];
  ld.param.u64 %end, [count];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;
  mov.u32 %t, %tid.x;
  mov.u32 %bd, %ntid.x;
  mov.u32 %bi, %ctaid.x;
  mov.u32 %gd, %nctaid.x;
  mul.wide.u32 %at, %bi, %bd;
  cvt.u64.u32 %a, %t;
  add.u64 %at, %at, %a;
  mul.wide.u32 %step, %bd, %gd;
  shl.b64 %at, %at, 4;
  shl.b64 %step, %step, 4;
  shl.b64 %end, %end, 4;
  mul.lo.u64 %three, %step, 3;
four:
  add.u64 %a, %at, %three;
  setp.ge.u64 %p, %a, %end;
  @%p bra single;
  add.u64 %b, %from, %at;
  ld.global.cg.v4.b32 {%x0, %x1, %x2, %x3}, [%b];
  add.u64 %b, %b, %step;
  ld.global.cg.v4.b32 {%x4, %x5, %x6, %x7}, [%b];
  add.u64 %b, %b, %step;
  ld.global.cg.v4.b32 {%x8, %x9, %x10, %x11}, [%b];
  add.u64 %b, %b, %step;
  ld.global.cg.v4.b32 {%x12, %x13, %x14, %x15}, [%b];
  add.u64 %a, %to, %at;
  st.global.cg.v4.b32 [%a], {%x0, %x1, %x2, %x3};
  add.u64 %a, %a, %step;
  st.global.cg.v4.b32 [%a], {%x4, %x5, %x6, %x7};
  add.u64 %a, %a, %step;
  st.global.cg.v4.b32 [%a], {%x8, %x9, %x10, %x11};
  add.u64 %a, %a, %step;
  st.global.cg.v4.b32 [%a], {%x12, %x13, %x14, %x15};
  shl.b64 %a, %step, 2;
  add.u64 %at, %at, %a;
  bra four;
single:
  setp.ge.u64 %p, %at, %end;
  @%p bra done;
  add.u64 %b, %from, %at;
  add.u64 %a, %to, %at;
  ld.global.cg.v4.b32 {%x0, %x1, %x2, %x3}, [%b];
  st.global.cg.v4.b32 [%a], {%x0, %x1, %x2, %x3};
  add.u64 %at, %at, %step;
  bra single;
done:
  ret;
}

.visible .entry compute(.param .u64 results, .param .u32 rounds)
{
  .reg .u64 %to, %at;
  .reg .u32 %t, %bd, %bi, %left;
  .reg .b32 %x<8>, %scale, %step, %one, %c;
  .reg .pred %p;
  ld.param.u64 %to, [results];
  ld.param.u32 %left, [rounds];
  cvta.to.global.u64 %to, %to;
  mov.u32 %t, %tid.x;
  mov.u32 %bd, %ntid.x;
  mov.u32 %bi, %ctaid.x;
  mul.lo.u32 %bi, %bi, %bd;
  add.u32 %t, %t, %bi;
  mul.wide.u32 %at, %t, 4;
  add.u64 %to, %to, %at;
  and.b32 %t, %t, 0xffff;
  mov.b32 %scale, 0x37800000;
  mov.b32 %step, 0xbe000000;
  mov.b32 %one, 0x3f800000;
  mov.b32 %c, 0xbff33333;
  cvt.rn.f32.u32 %x0, %t;
  fma.rn.f32 %x0, %x0, %scale, %step;
  fma.rn.f32 %x1, %x0, %one, %step;
  fma.rn.f32 %x2, %x1, %one, %step;
  fma.rn.f32 %x3, %x2, %one, %step;
  fma.rn.f32 %x4, %x3, %one, %step;
  fma.rn.f32 %x5, %x4, %one, %step;
  fma.rn.f32 %x6, %x5, %one, %step;
  fma.rn.f32 %x7, %x6, %one, %step;
round:
  fma.rn.f32 %x0, %x0, %x0, %c;
  fma.rn.f32 %x1, %x1, %x1, %c;
  fma.rn.f32 %x2, %x2, %x2, %c;
  fma.rn.f32 %x3, %x3, %x3, %c;
  fma.rn.f32 %x4, %x4, %x4, %c;
  fma.rn.f32 %x5, %x5, %x5, %c;
  fma.rn.f32 %x6, %x6, %x6, %c;
  fma.rn.f32 %x7, %x7, %x7, %c;
  fma.rn.f32 %x0, %x0, %x0, %c;
  fma.rn.f32 %x1, %x1, %x1, %c;
  fma.rn.f32 %x2, %x2, %x2, %c;
  fma.rn.f32 %x3, %x3, %x3, %c;
  fma.rn.f32 %x4, %x4, %x4, %c;
  fma.rn.f32 %x5, %x5, %x5, %c;
  fma.rn.f32 %x6, %x6, %x6, %c;
  fma.rn.f32 %x7, %x7, %x7, %c;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %p, %left, 0;
  @%p bra round;
  fma.rn.f32 %x0, %x1, %one, %x0;
  fma.rn.f32 %x0, %x2, %one, %x0;
  fma.rn.f32 %x0, %x3, %one, %x0;
  fma.rn.f32 %x0, %x4, %one, %x0;
  fma.rn.f32 %x0, %x5, %one, %x0;
  fma.rn.f32 %x0, %x6, %one, %x0;
  fma.rn.f32 %x0, %x7, %one, %x0;
  st.global.u32 [%to], %x0;
  ret;
}

.visible .entry chase(.param .u64 first, .param .u64 out, .param .u32 hops, .param .u32 wanted)
{
  .reg .u64 %q, %to, %c0, %c1, %g0, %g1;
  .reg .u32 %left, %on, %wanted;
  .reg .pred %p;
  ld.param.u64 %q, [first];
  ld.param.u64 %to, [out];
  ld.param.u32 %left, [hops];
  ld.param.u32 %wanted, [wanted];
  cvta.to.global.u64 %to, %to;
  mov.u32 %on, %smid;
  setp.eq.u32 %p, %wanted, 0xffffffff;
  @%p bra begin;
  setp.ne.u32 %p, %on, %wanted;
  @%p bra done;
begin:
  mov.u64 %g0, %globaltimer;
  mov.u64 %c0, %clock64;
hop:
  ld.volatile.global.u64 %q, [%q];
  sub.u32 %left, %left, 1;
  setp.ne.u32 %p, %left, 0;
  @%p bra hop;
  setp.eq.u64 %p, %q, 0;
  @%p bra done;
  mov.u64 %c1, %clock64;
  mov.u64 %g1, %globaltimer;
  sub.u64 %c1, %c1, %c0;
  sub.u64 %g1, %g1, %g0;
  st.global.u64 [%to], %c1;
  st.global.u64 [%to+8], %g1;
  st.global.u64 [%to+16], %q;
  st.global.u32 [%to+24], %on;
  st.global.u32 [%to+28], 1;
done:
  ret;
}

.visible .entry gate(.param .u64 flag, .param .u64 late, .param .u64 limit)
{
  .reg .u64 %at, %to, %limit, %t0, %t;
  .reg .u32 %v;
  .reg .pred %p;
  ld.param.u64 %at, [flag];
  ld.param.u64 %to, [late];
  ld.param.u64 %limit, [limit];
  cvta.to.global.u64 %at, %at;
  cvta.to.global.u64 %to, %to;
  mov.u64 %t0, %globaltimer;
poll:
  ld.volatile.global.u32 %v, [%at];
  setp.ne.u32 %p, %v, 0;
  @%p bra done;
  mov.u64 %t, %globaltimer;
  sub.u64 %t, %t, %t0;
  setp.lt.u64 %p, %t, %limit;
  @%p bra poll;
  mov.u32 %v, 1;
  st.volatile.global.u32 [%to], %v;
  membar.sys;
done:
  ret;
}
)";

}  // namespace pyxfer
