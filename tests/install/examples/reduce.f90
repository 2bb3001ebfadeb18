! The program of reduce.c in Fortran, which calls the C interface through iso_c_binding:
!
!   gfortran reduce.f90 $(pkg-config --libs farandole-c) -o reduce_fortran
!   farandole run -n 2 --run-dir runs/reduce -- ./reduce_fortran
program reduce
  use, intrinsic :: iso_c_binding
  implicit none
  ! Of farandole/capi.h.
  integer(c_int), parameter :: float32 = 2, average = 1, forward = 1, step_category = 10
  interface
    integer(c_int) function fdl_init() bind(c)
      import
    end function
    integer(c_int) function fdl_close() bind(c)
      import
    end function
    integer(c_int) function fdl_rank() bind(c)
      import
    end function
    integer(c_int) function fdl_size() bind(c)
      import
    end function
    type(c_ptr) function fdl_error() bind(c)
      import
    end function
    subroutine fdl_abort(code, message) bind(c)
      import
      integer(c_int), value :: code
      type(c_ptr), value :: message
    end subroutine
    integer(c_int) function fdl_group(ranks, count, group) bind(c)
      import
      type(c_ptr), value :: ranks
      integer(c_int), value :: count
      type(c_ptr) :: group
    end function
    subroutine fdl_group_free(group) bind(c)
      import
      type(c_ptr), value :: group
    end subroutine
    integer(c_int) function fdl_allreduce(group, name, values, count, dtype, op, ticket) bind(c)
      import
      type(c_ptr), value :: group, ticket
      character(kind=c_char) :: name(*)
      real(c_float) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: dtype, op
    end function
    integer(c_int64_t) function fdl_now() bind(c)
      import
    end function
    integer(c_int) function fdl_intern(name) bind(c)
      import
      character(kind=c_char) :: name(*)
    end function
    subroutine fdl_begin(category, name) bind(c)
      import
      integer(c_int), value :: category, name
    end subroutine
    subroutine fdl_end() bind(c)
      import
    end subroutine
    subroutine fdl_span(category, name, start, ended) bind(c)
      import
      integer(c_int), value :: category, name
      integer(c_int64_t), value :: start, ended
    end subroutine
    subroutine fdl_set_step(step) bind(c)
      import
      integer(c_int64_t), value :: step
    end subroutine
  end interface

  integer, parameter :: steps = 20, n = 65536
  real(c_float) :: values(n)
  type(c_ptr) :: ranks
  integer(c_int) :: compute, step_name
  integer(c_int64_t) :: step, start

  call check(fdl_init())
  call check(fdl_group(c_null_ptr, 0_c_int, ranks))
  compute = fdl_intern("compute" // c_null_char)
  step_name = fdl_intern("step" // c_null_char)
  do step = 0, steps - 1
    start = fdl_now()
    call fdl_set_step(step)
    call fdl_begin(forward, compute)
    values = real(fdl_rank() + step, c_float)
    call fdl_end()
    call check(fdl_allreduce(ranks, "values" // c_null_char, values, int(n, c_size_t), float32, average, c_null_ptr))
    call fdl_span(step_category, step_name, start, fdl_now())
  end do
  if (fdl_rank() == 0) then
    print "(a, i0, a, f0.1)", "the mean over ", fdl_size(), " ranks is ", values(1)
  end if
  call fdl_group_free(ranks)
  call check(fdl_close())

contains

  subroutine check(outcome)
    integer(c_int), intent(in) :: outcome
    if (outcome /= 0) call fdl_abort(outcome, fdl_error())
  end subroutine

end program
