CREATE TABLE PUMS AS SELECT i AS pid, CAST(18 + (i * 37) % 70 AS DOUBLE) AS age, CAST((i * 7919) % 90000 AS DOUBLE) AS income,
  i % 2 AS sex, (i // 2) % 2 AS married, 1 + (i * 13) % 6 AS educ, ['white', 'black', 'asian'][1 + (i * 11) % 3] AS race
FROM range(1200) t(i);
