"""A model API with a scripted timetable: real sockets, known times, any fault on demand."""
